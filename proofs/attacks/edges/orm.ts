import { key, type Lockstep, type Transaction, TransactionEndedEarlyError } from 'pg-lockstep'
import type pg from 'pg'
import type { ReservedSql, Sql } from 'postgres'
import { goal, type Goal } from '../../../tools/judge/report.ts'
import { ensureOrms } from '../../../tools/orms/load.ts'
import { type OrmDriver, orms } from '../../../tools/orms/orms.ts'
import type { Client, DriverName, Lab } from '../lab.ts'
import type { Arena, Edge } from './edge.ts'
import {
  BEGIN,
  COMMIT,
  COUNT_FROM_ZERO,
  CREATE,
  HIDDEN_COMMIT,
  INSERT,
  IS_FREE,
  LOCK,
  NOTES,
  READ,
  READ_BACKSLASHES,
  ROLLBACK,
  WRITE,
} from './orm.sql.ts'

const CALLERS = 4

/** What was seen of one way of working. */
interface Tally {
  /** The lock could be had by another session after the ORM's COMMIT. */
  free: number
  /** Rows of transactions that were rolled back, and of inner ones that had failed. */
  kept: number
  /** Rows of transactions that were reported as committed, and are not there. */
  missing: number
  /** Increments that another caller overwrote. */
  lost: number
  /** Transactions that failed for another reason than they were to. */
  failed: number
}

/**
 * ORMs send BEGIN and COMMIT on the client that they are given. Under Lockstep these are savepoints: the lock stays held, and the outer
 * rollback undoes all of it. The control gives the same ORM the client of a transaction that was opened by hand.
 */
export const orm: Edge = {
  name: 'orm',
  async run({ lab, driver, scaledDown, reportProgress }) {
    ensureOrms()
    const rounds = scaledDown ? 6 : 60
    const goals: Goal[] = []
    await lab.admin.query(CREATE)
    const clients = Array.from({ length: CALLERS }, () => lab.client(driver, lab.url('direct')))
    const tried = orms.filter((each) => each.driver === (driver === 'pg' ? 'pg' : 'postgres.js'))
    for (const each of tried) {
      reportProgress(`edges: orm, ${each.name}`)
      const seen = await attack(lab, clients, each, rounds)
      goals.push(goal(`${each.name}: the lock was free after its COMMIT`, seen.free, '=', 0))
      goals.push(goal(`${each.name}: rows of what was rolled back`, seen.kept, '=', 0))
      goals.push(goal(`${each.name}: rows that were reported and are missing`, seen.missing, '=', 0))
      goals.push(goal(`${each.name}: lost updates`, seen.lost, '=', 0))
      goals.push(goal(`${each.name}: failed for no reason`, seen.failed, '=', 0))
    }
    reportProgress('edges: orm, by hand')
    const control = driver === 'pg' ? await controlOnPg(lab, tried, rounds) : await controlOnPostgresJs(lab, rounds)
    goals.push(goal('control, by hand: the lock was free after its COMMIT', control.free, '>=', 1))
    goals.push(goal('control, by hand: rows of what was rolled back', control.kept, '>=', 1))
    const hidden = await hide({ lab, driver, scaledDown, reportProgress }, clients, rounds)
    goals.push(goal('a hidden COMMIT: reported as committed', hidden.reported, '=', 0))
    goals.push(goal('a hidden COMMIT: reported as ended early', hidden.named, '=', hidden.tried))
    await Promise.all(clients.map((client) => client.close()))
    return goals
  },
}

const FAILS = new Error('as intended')

/** Every third transaction is rolled back, and in each one an inner transaction is. */
async function attack(lab: Lab, clients: readonly Client[], tried: OrmDriver, rounds: number): Promise<Tally> {
  const lock = key`Orm:${tried.name}`
  const seen: Tally = { free: 0, kept: 0, missing: 0, lost: 0, failed: 0 }
  const reported: string[] = []
  await lab.admin.query(COUNT_FROM_ZERO, [tried.name])
  const work = async ({ lockstep }: Client, caller: number): Promise<void> => {
    for (let round = 0; round < rounds; round++) {
      const id = `${tried.name} ${caller} ${round}`
      const fails = round % 3 === 0
      const ended = lockstep.transaction({ lock }, async (tx) => {
        const value = await counterOf(tx, tried.name)
        const database = await tried.open(tx.client)
        await database.transaction((part) => part.insert(id))
        await failing(database.transaction((part) => part.insert(`${id} undone`).then(refuse)))
        if (await isFree(lab, lockstep, lock)) seen.free++
        await tx.query(WRITE, [tried.name, value + 1])
        if (fails) throw FAILS
        return id
      })
      try {
        reported.push(await ended)
      } catch (error) {
        if (error !== FAILS) seen.failed++
      }
    }
  }
  await Promise.all(clients.map(work))
  const { rows } = await lab.admin.query<{ id: string }>(NOTES, [`${tried.name} %`])
  const there = new Set(rows.map(({ id }) => id))
  seen.missing = reported.filter((id) => !there.has(id)).length
  seen.kept = there.size - (reported.length - seen.missing)
  const counted = await lab.admin.query<{ value: number }>(READ, [tried.name])
  seen.lost = reported.length - (counted.rows[0]?.value ?? 0)
  return seen
}

async function counterOf(tx: Transaction, name: string): Promise<number> {
  return (await tx.query<{ value: number }>(READ, [name])).rows[0]?.value ?? 0
}

async function isFree(lab: Lab, lockstep: Lockstep, lock: ReturnType<typeof key>): Promise<boolean> {
  return asked(lab, lockstep.lockId(lock))
}

async function asked(lab: Lab, lockId: bigint): Promise<boolean> {
  return (await lab.admin.query<{ free: boolean }>(IS_FREE, [lockId])).rows[0]?.free === true
}

function refuse(): never {
  throw FAILS
}

/** Knex, Drizzle and the others pass an error of the function on as it is. */
async function failing(pending: Promise<unknown>): Promise<void> {
  await pending.catch(ignoreIntended)
}

function ignoreIntended(error: unknown): void {
  if (error !== FAILS) throw error
}

/** The same ORMs on the client of a transaction that was opened by hand, with its lock. */
async function controlOnPg(lab: Lab, tried: readonly OrmDriver[], rounds: number): Promise<Tally> {
  const seen: Tally = { free: 0, kept: 0, missing: 0, lost: 0, failed: 0 }
  const pool = lab.pool(1)
  for (const each of tried) {
    const client = await pool.connect()
    const lockId = BigInt(each.name.length)
    for (let round = 0; round < Math.ceil(rounds / 10); round++) {
      await client.query(BEGIN)
      await client.query(LOCK, [lockId])
      const database = await each.open(each.takes === 'pool' ? poolOf(client) : client)
      await database.transaction((part) => part.insert(`by hand ${each.name} ${round}`))
      if (await asked(lab, lockId)) seen.free++
      await client.query(ROLLBACK)
    }
    client.release()
  }
  seen.kept = (await lab.admin.query(NOTES, ['by hand %'])).rowCount ?? 0
  return seen
}

/** A pool that has one client, and gives it to every caller. */
function poolOf(client: pg.PoolClient): object {
  const shared = { query: client.query.bind(client), release: () => undefined }
  return { connect: () => Promise.resolve(shared), end: () => Promise.resolve() }
}

/** A reserved connection has no begin() that an ORM could call: COMMIT is sent as its user would. */
async function controlOnPostgresJs(lab: Lab, rounds: number): Promise<Tally> {
  const seen: Tally = { free: 0, kept: 0, missing: 0, lost: 0, failed: 0 }
  const client = lab.client('postgres', lab.url('direct'))
  const lockId = 4711n
  for (let round = 0; round < Math.ceil(rounds / 10); round++) {
    const sql: ReservedSql = await (client.pool as Sql).reserve()
    await sql.unsafe(BEGIN)
    await sql.unsafe(LOCK, [String(lockId)])
    await sql.unsafe(INSERT, [`by hand, postgres.js ${round}`])
    await sql.unsafe(COMMIT)
    if (await asked(lab, lockId)) seen.free++
    await sql.unsafe(ROLLBACK)
    sql.release()
  }
  seen.kept = (await lab.admin.query(NOTES, ['by hand, postgres.js %'])).rowCount ?? 0
  await client.close()
  return seen
}

/** A COMMIT that no reader of the text can see. */
async function hide(
  { driver }: Arena,
  clients: readonly Client[],
  rounds: number,
): Promise<{ tried: number; reported: number; named: number }> {
  const seen = { tried: 0, reported: 0, named: 0 }
  for (const { lockstep } of clients) {
    for (let round = 0; round < Math.ceil(rounds / 6); round++) {
      seen.tried++
      const ended = lockstep.transaction({ lock: key`Orm:hidden` }, async (tx) => {
        await send(driver, tx, READ_BACKSLASHES)
        await send(driver, tx, HIDDEN_COMMIT)
      })
      await ended.then(
        () => seen.reported++,
        (error: unknown) => {
          if (error instanceof TransactionEndedEarlyError) seen.named++
        },
      )
    }
  }
  return seen
}

async function send(driver: DriverName, { client }: Transaction, text: string): Promise<void> {
  if (driver === 'pg') await (client as pg.PoolClient).query(text)
  else await (client as Sql).unsafe(text)
}
