import { setTimeout as sleep } from 'node:timers/promises'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, type Leak, type LeakKind, LeakError, type Pool } from '../index.ts'
import { checkSchemaName, type Driver, driverFor, quoteIdentifier, withConnection } from '../postgres/index.ts'
import { findLeaks as findLeaksSql, hasSchema } from './testing.sql.ts'

/** All kinds that the server can be asked for. */
const KINDS: readonly LeakKind[] = ['lock', 'lease', 'transaction', 'connection']
export const DEFAULT_GRACE_MS = 5000
const LOOK_EVERY_MS = 10

/** What `findLeaks()` and `assertNoLeaks()` take. */
export interface LeakOptions {
  /** Which kinds are looked for. Default: `lock`, `lease` and `transaction`. */
  readonly kinds?: readonly LeakKind[]
  /** How long `assertNoLeaks()` waits for them to go: a server notices a moment later that a client is gone. Default 5,000. */
  readonly graceMs?: number
  /** The schema of Lockstep's tables. Default `lockstep`. */
  readonly schema?: string
}

const LEAK_OPTIONS: OptionNames<LeakOptions> = { kinds: true, graceMs: true, schema: true }

/**
 * Lists what is held or open in the database of the pool: advisory locks with their keys, leases, sessions in a transaction, and, if asked
 * for, all other sessions. The session that looks is not among them.
 *
 * @example
 * const leaks = await findLeaks(pool, { kinds: ['lock', 'lease'] })
 */
export async function findLeaks(pool: Pool, options: LeakOptions = {}): Promise<Leak[]> {
  checkOptions('findLeaks()', options, LEAK_OPTIONS)
  checkKinds('kinds', options.kinds ?? [], KINDS)
  const kinds = new Set<string>(options.kinds ?? KINDS.filter((kind) => kind !== 'connection'))
  const schema = checkSchemaName(options.schema ?? 'lockstep')
  const rows = await ask(driverFor(pool), schema)
  return rows.filter(({ kind }) => kinds.has(kind))
}

/** A misspelled kind would look for nothing. */
export function checkKinds(option: string, kinds: readonly string[], known: readonly LeakKind[]): void {
  const wrong = kinds.find((kind) => !(known as readonly string[]).includes(kind))
  if (wrong === undefined) return
  throw new InvalidOptionError(`Unknown kind of leak ${JSON.stringify(wrong)} in \`${option}\`.`, {
    advice: `Use ${known.join(', ')}.`,
  })
}

async function ask(driver: Driver, schema: string): Promise<Leak[]> {
  return withConnection(driver, async (connection) => {
    const [there] = await connection.script(hasSchema(schema))
    const quoted = there?.rows[0]?.['there'] === 'true' ? quoteIdentifier(schema) : undefined
    const [found] = await connection.script(findLeaksSql(quoted))
    return (found?.rows ?? []) as unknown as Leak[]
  })
}

/**
 * Fails with `LeakError` if something is still held or open after `graceMs`.
 *
 * @example
 * afterEach(() => assertNoLeaks(pool))
 */
export async function assertNoLeaks(pool: Pool, options: LeakOptions = {}): Promise<void> {
  const until = performance.now() + (options.graceMs ?? DEFAULT_GRACE_MS)
  for (;;) {
    const leaks = await findLeaks(pool, options)
    if (leaks.length === 0) return
    if (performance.now() > until) throw leaksFound(leaks)
    await sleep(LOOK_EVERY_MS)
  }
}

export function leaksFound(leaks: readonly Leak[]): LeakError {
  const list = leaks.map(({ kind, detail }) => `\n  ${kind}: ${detail}`).join('')
  return new LeakError(
    `The test leaves ${leaks.length === 1 ? 'something' : `${leaks.length} things`} behind:${list}\n`,
    {
      advice: 'Wait for every transaction, release every lease, stop dispatchers, close pools, and use every fault.',
      leaks,
    },
  )
}
