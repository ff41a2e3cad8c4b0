import type { Guard, GuardMode, Guards, GuardSample } from '../index.ts'
import type { Call, Command, Outcome } from './command.ts'
import { formatTime } from './formatting.ts'
import { table } from './table.ts'
import type { Terminal } from './terminal.ts'
import { UsageError } from './usageError.ts'
import { withDatabase } from './withDatabase.ts'

const ADD = "Write `pg-lockstep guard add TABLE --key 'Account:{id}'`, with columns of the table in braces."
const SET = 'Write `pg-lockstep guard set TABLE observe|enforce|N%`.'

export const guardCommand: Command = {
  name: 'guard',
  summary: 'Manage tables that can be written only under a lock. Show who writes without it',
  usage: '[add TABLE [MODE] --key KEY | set TABLE MODE | samples TABLE | remove TABLE] [--key KEY]',
  details: `A guard ties a table to a key, such as Account:{id}. The database then checks every write, of every program. MODE is
observe (count writes without the lock and sample who made them; the default), enforce (such a write fails) or N% (enforce
for that share of the keys). add and remove need the owner of Lockstep's schema. Adding a guard that exists repairs it.`,
  examples: [
    { line: 'pg-lockstep guard', does: 'list the guards and their counts' },
    { line: "pg-lockstep guard add accounts --key 'Account:{id}'", does: 'count writes without the lock' },
    { line: 'pg-lockstep guard samples accounts', does: 'show who wrote without the lock' },
    {
      line: 'pg-lockstep guard set accounts 10% --reason "one key in ten"',
      does: 'refuse such writes for one key in ten',
    },
    { line: 'pg-lockstep guard set accounts enforce', does: 'refuse all such writes' },
    { line: 'pg-lockstep guard remove accounts', does: 'remove the guard' },
  ],
  options: ['url', 'schema', 'driver', 'key', 'lease', 'reason', 'limit', 'json'],
  words: ['add', 'set', 'samples', 'remove'],
  moreWords: 2,
  run(call) {
    const work = workOf(call)
    return withDatabase(call.values, async ({ lockstep }): Promise<Outcome> => {
      const { done, samples } = await work(lockstep.guards)
      const guards = await lockstep.guards.list()
      return {
        exitCode: 0,
        json: { ok: true, command: 'guard', schema: lockstep.schema, guards, ...(samples && { samples }) },
        text: (terminal) => {
          if (samples !== undefined) return reportSamples(samples, terminal)
          return [...(done === undefined ? [] : [done]), report(guards, terminal)].join('\n\n')
        },
      }
    })
  },
}

interface Done {
  /** What has happened, in a sentence. */
  readonly done?: string
  readonly samples?: readonly GuardSample[]
}

/** What is to be done, checked before a database is asked. */
function workOf({ words, values }: Call): (guards: Guards) => Promise<Done> {
  const [verb, name, mode, ...rest] = words
  const { key, reason } = values
  if (verb === undefined) {
    if (key !== undefined) throw new UsageError('--key is for one guard.', ADD)
    refuseExcept(values, [])
    return () => Promise.resolve({})
  }
  if (name === undefined) throw new UsageError('No table was named.', verb === 'set' ? SET : ADD)
  if (rest.length > 0 || (mode !== undefined && verb !== 'add' && verb !== 'set'))
    throw new UsageError(`\`guard ${verb}\` takes a table and nothing else.`, SET)
  const which = key === undefined ? {} : { key }
  const why = reason === undefined ? {} : { reason }
  switch (verb) {
    case 'add': {
      refuseExcept(values, ['lease', 'reason'])
      if (key === undefined) throw new UsageError('--key is missing.', ADD)
      const wanted = mode === undefined ? {} : { mode: modeOf(mode) }
      const held = values.lease === undefined ? 'lock' : 'lease'
      return async (guards) => {
        const guard = await guards.add(name, { key, held, ...wanted, ...why })
        return { done: `${guard.table} is guarded by ${guard.key}: ${shown(guard.mode)}.` }
      }
    }
    case 'set': {
      refuseExcept(values, ['reason'])
      if (mode === undefined) throw new UsageError('No mode was named.', SET)
      const wanted = modeOf(mode)
      return async (guards) => {
        await guards.set(name, wanted, { ...which, ...why })
        return { done: `The guard of ${name} is set to ${shown(wanted)}.` }
      }
    }
    case 'samples': {
      refuseExcept(values, ['limit'])
      const limit = values.limit === undefined ? {} : { limit: Number(values.limit) }
      return async (guards) => ({ samples: await guards.samples(name, { ...which, ...limit }) })
    }
    default: {
      refuseExcept(values, [])
      return async (guards) => {
        await guards.remove(name, which)
        return { done: `The guard of ${name} is removed.` }
      }
    }
  }
}

/** Refuses options of other verbs: they would be ignored. */
function refuseExcept(values: Call['values'], allowed: readonly string[]): void {
  for (const option of ['lease', 'reason', 'limit'] as const) {
    if (values[option] !== undefined && !allowed.includes(option))
      throw new UsageError(`--${option} is not for this.`, 'Look at `pg-lockstep help guard`.')
  }
}

function modeOf(text: string): GuardMode {
  if (text === 'observe' || text === 'enforce') return text
  const percent = /^(\d{1,3})%$/.exec(text)?.[1]
  if (percent !== undefined && Number(percent) <= 100) return { percent: Number(percent) }
  throw new UsageError(`Unknown mode ${JSON.stringify(text)}.`, SET)
}

function shown(mode: GuardMode): string {
  return typeof mode === 'string' ? mode : `${mode.percent}%`
}

function report(guards: readonly Guard[], { columns, paint }: Terminal): string {
  if (guards.length === 0) return 'No table has a guard.'
  const titles = ['table', 'key', 'mode', 'state', 'unlocked', 'by list', 'refused', 'since']
  const rows = guards.map((each) => [
    each.table,
    each.held === 'lock' ? each.key : `${each.key} (lease)`,
    shown(each.mode),
    each.state,
    String(each.unlocked),
    String(each.listed),
    String(each.refused),
    formatTime(each.addedAt),
  ])
  return table([titles.map((title) => paint('bold', title)), ...rows], columns)
}

function reportSamples(samples: readonly GuardSample[], { columns, paint }: Terminal): string {
  if (samples.length === 0) return 'Nothing was written without the lock in the last week.'
  const head = ['when', 'application', 'role', 'what', 'key', 'statement'].map((title) => paint('bold', title))
  const rows = samples.map(({ at, application, role, operation, key = '', query }) => {
    return [formatTime(at), application, role, operation, key, query]
  })
  return table([head, ...rows], columns)
}
