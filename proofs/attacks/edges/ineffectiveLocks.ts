import { setImmediate as turn } from 'node:timers/promises'
import pg from 'pg'
import { Lockstep, LocksIneffectiveError } from 'pg-lockstep'
import { type Goal, goal } from '../../../tools/judge/report.ts'
import { missingOfBalanced, startBalanced } from '../../../tools/server/balanced.ts'
import { startIneffectiveLocks } from '../../../tools/server/ineffectiveLocks.ts'
import type { Client } from '../lab.ts'
import type { Arena, Edge } from './edge.ts'
import {
  beginWithLock,
  COMMIT,
  CREATE_COUNTER,
  PAUSE_REPLAY,
  READ_COUNTER,
  WRITE_COUNTER,
} from './ineffectiveLocks.sql.ts'

const WORKERS = 6
const ROUNDS = { full: 60, scaledDown: 8 }
const LEVELS = ['read committed', 'repeatable read', 'serializable'] as const

/** The outcome of calls that each add one to the counter under a lock. */
interface Added {
  readonly ran: number
  readonly refused: number
  readonly lost: number
}

/**
 * Servers and routes on which locks do nothing: an engine that accepts them and ignores them, and a balancer that answers reads
 * under a lock from a standby. Every call is refused, and none of them has run its function. The control takes the same lock by hand, is
 * granted it, and loses updates.
 */
export const ineffectiveLocks: Edge = {
  name: 'ineffective-locks',
  async run(arena) {
    const goals = [...(await attackEngine(arena))]
    // The programs that make a standby are of PostgreSQL 15: once, and not for each server.
    const isFifteen = (await arena.lab.admin.query<{ server_version: string }>('SHOW server_version')).rows[0]
    if (!arena.scaledDown && isFifteen?.server_version.startsWith('15') === true)
      goals.push(...(await attackBalancer(arena)))
    return goals
  },
}

async function attackEngine({ lab, driver, scaledDown }: Arena): Promise<readonly Goal[]> {
  const rounds = scaledDown ? ROUNDS.scaledDown : ROUNDS.full
  await using stub = await startIneffectiveLocks(lab.url('direct'))
  const url = stub.url(lab.url('direct'))
  const naive = new pg.Pool({ connectionString: url, max: WORKERS })
  const control = await count(lab.admin, rounds, (add) => byHand(naive, add))
  await naive.end()
  const attack = async (client: Client): Promise<Added> => {
    const added = await count(lab.admin, rounds, (add) => withLockstep(client.lockstep, add))
    await client.close()
    return added
  }
  const onStub = await attack(lab.client(driver, url, { poolSize: WORKERS }))
  const alone = await attack(lab.client(driver, url, { poolSize: 1 }))
  const onServer = await attack(lab.client(driver, lab.url('direct'), { poolSize: WORKERS }))
  return [
    goal('an engine that ignores locks: calls that ran', onStub.ran + alone.ran, '=', 0),
    goal('an engine that ignores locks: calls refused', onStub.refused + alone.refused, '=', 2 * WORKERS * rounds),
    goal('the server itself: calls refused', onServer.refused, '=', 0),
    goal('the server itself: lost updates', onServer.lost, '=', 0),
    goal('control, an engine that ignores locks: lost updates', control.lost, '>=', 1),
  ]
}

async function attackBalancer({ driver, lab }: Arena): Promise<readonly Goal[]> {
  const missing = missingOfBalanced()
  if (missing !== undefined) throw new Error(`${missing} is not installed: see tools/prepare.ts`)
  await using servers = await startBalanced()
  const admin = new pg.Pool({ connectionString: servers.primary.url(), max: 2 })
  await new Lockstep(admin).migrate()
  await admin.query(CREATE_COUNTER)
  await servers.caughtUp()
  const standby = new pg.Client({ connectionString: servers.standby.url() })
  await standby.connect()
  await standby.query(PAUSE_REPLAY)
  await standby.end()
  const url = servers.pgpool.url('postgres')
  const naive = new pg.Pool({ connectionString: url, max: WORKERS })
  const control = await count(admin, 10, (add) => byHand(naive, add), false)
  await naive.end()
  const client = lab.client(driver, url, { poolSize: WORKERS })
  const ours = await count(admin, 10, (add) => withLockstep(client.lockstep, add), false)
  await client.close()
  await admin.end()
  return [
    goal('Pgpool that balances reads: calls that ran', ours.ran, '=', 0),
    goal('Pgpool that balances reads: calls refused', ours.refused, '=', 10 * WORKERS),
    goal('control, Pgpool that balances reads: lost updates', control.lost, '>=', 1),
  ]
}

type Query = (text: string, values?: unknown[]) => Promise<{ rows: { n: number }[] }>
/** Adds one, as a program does that relies on its lock. */
type Add = (query: Query) => Promise<void>

async function addOne(query: Query): Promise<void> {
  const { rows } = await query(READ_COUNTER)
  await turn()
  await query(WRITE_COUNTER, [(rows[0]?.n ?? 0) + 1])
}

async function byHand(pool: pg.Pool, add: Add): Promise<void> {
  const client = await pool.connect()
  try {
    await client.query(beginWithLock(4711))
    await add((text, values) => client.query(text, values))
    await client.query(COMMIT)
  } finally {
    client.release()
  }
}

let calls = 0

async function withLockstep(lockstep: Lockstep, add: Add): Promise<void> {
  const isolation = LEVELS[calls++ % LEVELS.length] ?? 'read committed'
  await lockstep.transaction({ lock: 'Counter:global', isolation }, (tx) =>
    add((text, values) => tx.query<{ n: number }>(text, values)),
  )
}

async function count(admin: pg.Pool, rounds: number, run: (add: Add) => Promise<void>, create = true): Promise<Added> {
  if (create) await admin.query(CREATE_COUNTER)
  const before = await valueOf(admin)
  let [ran, refused] = [0, 0]
  const work = async (): Promise<void> => {
    for (let round = 0; round < rounds; round++) {
      try {
        await run(addOne)
        ran++
      } catch (error) {
        if (!(error instanceof LocksIneffectiveError)) throw error
        refused++
      }
    }
  }
  await Promise.all(Array.from({ length: WORKERS }, work))
  return { ran, refused, lost: ran - ((await valueOf(admin)) - before) }
}

async function valueOf(admin: pg.Pool): Promise<number> {
  return (await admin.query<{ n: number }>(READ_COUNTER)).rows[0]?.n ?? 0
}
