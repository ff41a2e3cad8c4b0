/**
 * A process of callers that work through an ORM. It receives which one, plays until it receives a stop, and reports every transaction
 * that committed. Arguments: url, application name.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { inspect } from 'node:util'
import { key, Lockstep } from 'pg-lockstep'
import pg from 'pg'
import postgres from 'postgres'
import { ormNamed } from '../../../tools/orms/underTest/index.ts'
import type { OpenOrm, OrmPart } from '../../../tools/orms/underTest/ormUnderTest.ts'

/** What it receives. */
export type OrmOrder =
  | {
      readonly orm: string
      readonly callers: number
      /** The ids of its notes begin with it. */
      readonly prefix: string
      /** `naive`: the ORM's own transaction, without the lock, so many times for each caller. */
      readonly naive?: number
    }
  | 'stop'

/** What it reports. */
export type OrmNews = { readonly committed: string } | { readonly error: string } | { readonly ended: true }

const [url, application] = process.argv.slice(2) as [string, string]
const FAILS = new Error('as intended')

const report = (news: OrmNews): void => void process.send?.(news)

let stopping = false

async function play(order: Exclude<OrmOrder, 'stop'>): Promise<void> {
  const { orm: name, callers, prefix, naive } = order
  const orm = await ormNamed(name)
  const pool =
    orm.driver === 'pg'
      ? new pg.Pool({ connectionString: url, max: 5, application_name: application })
      : postgres(url, {
          max: 5,
          // A pooler in transaction mode knows nothing of prepared statements.
          prepare: false,
          onnotice: () => undefined,
          backoff: () => 0.01,
          connection: { application_name: application },
        })
  if (pool instanceof pg.Pool) pool.on('error', () => undefined)
  const lockstep = new Lockstep(pool) as unknown as Lockstep
  const open = await orm.open({ lockstep, pool, url })
  const once = naive === undefined ? lockFirst(lockstep, open, name) : withoutLock(open, name)
  await Promise.all(
    Array.from({ length: callers }, async (_, caller) => {
      for (let round = 0; naive === undefined ? !stopping : round < naive; round++) {
        const id = `${prefix} ${caller}-${round}`
        await once(id, naive === undefined && round % 3 === 2).then(
          () => report({ committed: id }),
          (error: unknown) => {
            if (error !== FAILS) report({ error: inspect(error) })
          },
        )
      }
    }),
  )
  await open.close()
  await lockstep.close()
  // After a lost connection, postgres.js would wait for its end forever.
  if (pool instanceof pg.Pool) await pool.end()
  else await pool.end({ timeout: 1 })
}

type Once = (id: string, fails: boolean) => Promise<void>

/** The counter, a note in a nested transaction, another one that fails alone, an event. */
function lockFirst(lockstep: Lockstep, orm: OpenOrm, name: string): Once {
  const stream = { topic: 'orms', key: name }
  return (id, fails) =>
    lockstep.transaction(
      { lock: key`Orm:${name}`, isolation: 'serializable', streams: [stream], waitMs: false },
      (tx) =>
        orm.inside(tx, async (part) => {
          const value = await part.readCounter(name)
          await part.nested((inner) => inner.insertNote(id))
          await part.nested((inner) => failAfter(inner.insertNote(`${id} undone`))).catch(ignoreIntended)
          await part.writeCounter(name, value + 1)
          await tx.enqueue({ ...stream, payload: { id } })
          if (fails) throw FAILS
        }),
    )
}

/** As it is done without a lock: read, decide, write. */
function withoutLock(orm: OpenOrm, name: string): Once {
  return (id) =>
    orm.own('read committed', async (part: OrmPart) => {
      const value = await part.readCounter(name)
      await part.insertNote(id)
      await part.writeCounter(name, value + 1)
    })
}

async function failAfter(work: Promise<unknown>): Promise<never> {
  await work
  throw FAILS
}

function ignoreIntended(error: unknown): void {
  if (error !== FAILS) throw error
}

process.on('message', (order: OrmOrder) => {
  if (order === 'stop') {
    stopping = true
    return
  }
  stopping = false
  void play(order)
    .catch((error: unknown) => report({ error: String(error) }))
    // What was sent must arrive before the end is reported.
    .then(() => sleep(0))
    .then(() => report({ ended: true }))
})
process.send?.('ready')
