import { AsyncLocalStorage } from 'node:async_hooks'
import type pg from 'pg'
import { type Lockstep, NestedTransactionError, type Transaction } from 'pg-lockstep'
import { goal } from '../../../tools/judge/report.ts'
import { type AddJob, jobQueue as newQueue } from '../../../tools/server/testing/jobQueue.ts'
import { random, type Random } from '../../seed.ts'
import type { Edge } from './edge.ts'
import { ALL, BEGIN, COMMIT, CREATE, INSERT, release, ROLLBACK, rollBackTo, savepoint } from './jobQueue.sql.ts'

/** Queues that work in parallel, and how often each is filled. */
const LANES = 4
const ROUNDS = { full: 250, scaledDown: 15 }
const STRANGERS = 6
/** An owner continues for so many statements after its own job: strangers run while it is open, and after its end. */
const MOST_STATEMENTS = 8
/** An owner and a job for each lane. */
const POOL_SIZE = 2 * LANES

type Insert = (id: string) => Promise<unknown>

/** How a program runs its transactions. */
interface Program {
  /** A transaction of its own, or what the program takes for one. */
  transaction(fn: (insert: Insert, part: Part) => Promise<void>): Promise<void>
  /** The same outside of whatever the code runs in. */
  detached(fn: (insert: Insert) => Promise<void>): Promise<void>
}

/** Runs the function as a part of the transaction. */
type Part = (fn: (insert: Insert) => Promise<void>) => Promise<void>

/** How a request ended, and which rows it must have if it committed. */
interface Ended {
  readonly kind: 'owner' | 'stranger' | 'detached'
  readonly rows: readonly string[]
  readonly error: unknown
}

/** Thrown by requests that change their mind. */
class ChangedItsMindError extends Error {}

/**
 * Requests that share a job queue. The queue starts the job of one request in the async context of another, whose transaction is open
 * and may roll back. Every request that was reported as committed has its rows; every other one has an error.
 */
export const jobQueue: Edge = {
  name: 'job-queue',
  async run({ lab, driver, scaledDown }) {
    const rounds = scaledDown ? ROUNDS.scaledDown : ROUNDS.full
    const attack = async (program: Program): Promise<Verdict> => {
      await lab.admin.query(CREATE)
      const lanes = Array.from({ length: LANES }, (_, lane) => runLane(program, lane, rounds))
      const ended = (await Promise.all(lanes)).flat()
      const { rows } = await lab.admin.query<{ id: string }>(ALL)
      return judge(ended, new Set(rows.map(({ id }) => id)))
    }
    const client = lab.client(driver, lab.url('direct'), { poolSize: POOL_SIZE })
    const ours = await attack(withLockstep(client.lockstep))
    await client.close()
    const naive = await attack(byHand(lab.pool(POOL_SIZE)))
    return [
      goal('reported as committed, and rows are missing', ours.committedWithoutRow, '=', 0),
      goal('reported as failed, and rows are there', ours.failedWithRow, '=', 0),
      goal('errors that are neither a refusal nor a rollback', ours.otherErrors, '=', 0),
      goal('strangers refused', ours.refused, '>=', 1),
      goal('detached jobs that failed', ours.detachedFailed, '=', 0),
      goal('owners that committed', ours.ownersCommitted, '>=', 1),
      goal('control, reported as committed, and rows are missing', naive.committedWithoutRow, '>=', 1),
    ]
  },
}

interface Verdict {
  readonly committedWithoutRow: number
  readonly failedWithRow: number
  readonly otherErrors: number
  readonly refused: number
  readonly detachedFailed: number
  readonly ownersCommitted: number
}

function judge(ended: readonly Ended[], rows: ReadonlySet<string>): Verdict {
  const count = (test: (each: Ended) => boolean): number => ended.filter(test).length
  const hasAll = ({ rows: own }: Ended): boolean => own.every((id) => rows.has(id))
  const isRefused = ({ error }: Ended): boolean => error instanceof NestedTransactionError
  return {
    committedWithoutRow: count((each) => each.error === undefined && !hasAll(each)),
    failedWithRow: count((each) => each.error !== undefined && each.rows.some((id) => rows.has(id))),
    otherErrors: count(
      (each) =>
        each.error !== undefined &&
        !(each.kind === 'stranger' && isRefused(each)) &&
        !(each.error instanceof ChangedItsMindError),
    ),
    refused: count(isRefused),
    detachedFailed: count((each) => each.kind === 'detached' && each.error !== undefined),
    ownersCommitted: count((each) => each.kind === 'owner' && each.error === undefined),
  }
}

/** One queue, filled again and again: by the owner of an open transaction first, then by strangers. */
async function runLane(program: Program, lane: number, rounds: number): Promise<Ended[]> {
  const chance = random(42, 'job-queue', lane)
  const ended: Ended[] = []
  for (let round = 0; round < rounds; round++) {
    const name = `${lane}-${round}`
    const add = newQueue()
    let begin = (): void => undefined
    const begun = new Promise<void>((resolve) => (begin = resolve))
    let fill = (): void => undefined
    const filled = new Promise<void>((resolve) => (fill = resolve))
    const owner = runOwner(program, name, chance, (work) =>
      add(async () => {
        await work()
        begin()
        await filled
      }),
    )
    // An owner that fails before that is counted below.
    await Promise.race([begun, owner])
    const strangers = Array.from({ length: STRANGERS }, (_, number) =>
      runStranger(program, `${name}-stranger-${number}`, chance.chance(0.3), add),
    )
    fill()
    ended.push(...(await Promise.all([owner, ...strangers])))
  }
  return ended
}

async function runOwner(
  program: Program,
  name: string,
  chance: Random,
  add: (job: () => Promise<void>) => Promise<void>,
): Promise<Ended> {
  const rows = Array.from({ length: 1 + chance.below(MOST_STATEMENTS) }, (_, number) => `${name}-owner-${number}`)
  const rollsBack = chance.chance(0.5)
  const job = `${name}-owner-job`
  const ending = program.transaction(async (insert, part) => {
    await add(() => part(async (write) => void (await write(job))))
    for (const id of rows) await insert(id)
    if (rollsBack) throw new ChangedItsMindError('rolled back')
  })
  return { kind: 'owner', rows: [job, ...rows], error: await errorOf(ending) }
}

async function runStranger(program: Program, id: string, detached: boolean, add: AddJob): Promise<Ended> {
  const work = async (insert: Insert): Promise<void> => void (await insert(id))
  const job = (): Promise<void> => (detached ? program.detached(work) : program.transaction(work))
  return { kind: detached ? 'detached' : 'stranger', rows: [id], error: await errorOf(add(job)) }
}

async function errorOf(pending: Promise<unknown>): Promise<unknown> {
  return pending.then(
    () => undefined,
    (error: unknown) => error,
  )
}

function withLockstep(lockstep: Lockstep): Program {
  const inserting =
    (tx: Transaction): Insert =>
    (id) =>
      tx.query(INSERT, [id])
  return {
    transaction: (fn) =>
      lockstep.transaction({}, (tx) =>
        fn(inserting(tx), (work) => tx.transaction({}, (part) => work(inserting(part)))),
      ),
    detached: (fn) => lockstep.detached(() => lockstep.transaction({}, (tx) => fn(inserting(tx)))),
  }
}

/** The control: a wrapper that joins what is open in its async context, as many have it. */
function byHand(pool: pg.Pool): Program {
  const current = new AsyncLocalStorage<{ readonly client: pg.PoolClient; open: boolean } | undefined>()
  let savepoints = 0

  const joined = async (client: pg.PoolClient, fn: (insert: Insert) => Promise<void>): Promise<void> => {
    const number = ++savepoints
    await client.query(savepoint(number))
    try {
      await fn((id) => client.query(INSERT, [id]))
      await client.query(release(number))
    } catch (error) {
      await client.query(rollBackTo(number))
      throw error
    }
  }

  const transaction: Program['transaction'] = async (fn) => {
    const outer = current.getStore()
    if (outer?.open === true) {
      return joined(outer.client, (insert) => fn(insert, (work) => joined(outer.client, work)))
    }
    const client = await pool.connect()
    const frame = { client, open: true }
    try {
      await client.query(BEGIN)
      await current.run(frame, () =>
        fn(
          (id) => client.query(INSERT, [id]),
          (work) => joined(client, work),
        ),
      )
      frame.open = false
      await client.query(COMMIT)
    } catch (error) {
      frame.open = false
      await client.query(ROLLBACK)
      throw error
    } finally {
      client.release()
    }
  }

  return { transaction, detached: (fn) => current.run(undefined, () => transaction(fn)) }
}
