import type { Command } from './command.ts'
import { withDatabase } from './withDatabase.ts'
import { parseNumber } from './parseValues.ts'
import { UsageError } from './usageError.ts'

export const migrateCommand: Command = {
  name: 'migrate',
  summary: 'Create Lockstep’s schema, or update it',
  usage: '[--to N] [--max-event-bytes N] [--max-ttl MS] [--synchronous-failover yes|no]',
  details: `Creates Lockstep's schema or updates it, in one transaction: all of it or nothing. Several processes can run it at the
same time. If the schema is up to date, it changes nothing.`,
  examples: [
    { line: 'pg-lockstep migrate', does: 'migrate the database in DATABASE_URL' },
    { line: 'pg-lockstep migrate --url postgres://owner@db/app --to 2', does: 'another database, up to version 2' },
    { line: 'pg-lockstep migrate --max-event-bytes 4000000', does: 'also set the size limit of events' },
    { line: 'pg-lockstep migrate --max-ttl 30000', does: 'also set how long new leases wait after a failover' },
  ],
  options: ['url', 'schema', 'driver', 'to', 'max-event-bytes', 'max-ttl', 'synchronous-failover', 'json'],
  words: [],
  run({ values }) {
    const to = values.to === undefined ? undefined : versionOf(values.to)
    const limit = values['max-event-bytes']
    const maxEventBytes = limit === undefined ? undefined : parseNumber('max-event-bytes', limit)
    const ttl = values['max-ttl']
    const maxTtlMs = ttl === undefined ? undefined : parseNumber('max-ttl', ttl)
    const stated = values['synchronous-failover']
    const synchronousFailover = stated === undefined ? undefined : yesOrNo(stated)
    return withDatabase(values, async ({ lockstep, driver }) => {
      const result = await lockstep.migrate({
        ...(to === undefined ? {} : { to }),
        ...(maxEventBytes === undefined ? {} : { maxEventBytes }),
        ...(maxTtlMs === undefined ? {} : { maxTtlMs }),
        ...(synchronousFailover === undefined ? {} : { synchronousFailover }),
      })
      const limited = [
        ...(maxEventBytes === undefined ? [] : [`Events have at most ${maxEventBytes} bytes.`]),
        ...(maxTtlMs === undefined ? [] : [`Leases have a ttl of at most ${maxTtlMs} ms.`]),
        ...(synchronousFailover === undefined
          ? []
          : [`After a failover, new leases ${synchronousFailover ? 'do not wait' : 'wait for the longest ttl'}.`]),
      ]
      return {
        exitCode: 0,
        json: { ok: true, command: 'migrate', schema: lockstep.schema, driver, ...result },
        text: ({ paint }) => {
          if (result.applied.length === 0)
            return [`The schema "${lockstep.schema}" is at version ${result.to}: nothing to do.`, ...limited].join('\n')
          const steps = result.applied.map(
            ({ version, name }) => `  ${paint('green', String(version).padStart(4, '0'))}  ${name}`,
          )
          const whence = result.from === 0 ? 'was created' : `went from version ${result.from}`
          return [
            `The schema "${lockstep.schema}" ${whence}, and is now at version ${result.to}:`,
            ...steps,
            ...limited,
          ].join('\n')
        },
      }
    })
  },
}

function yesOrNo(text: string): boolean {
  if (text === 'yes' || text === 'no') return text === 'yes'
  throw new UsageError(`--synchronous-failover cannot be ${JSON.stringify(text)}.`, 'Use yes or no.')
}

function versionOf(text: string): number {
  if (/^\d{1,6}$/.test(text)) return Number(text)
  throw new UsageError(`--to cannot be ${JSON.stringify(text)}.`, 'Use the number of a migration, such as 2.')
}
