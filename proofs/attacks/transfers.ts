import { randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { goal, type Goal, type ResultRow } from '../../tools/judge/report.ts'
import { bookErrors, ReportedTransfers } from '../checkers/ledger.ts'
import { timeUntilNoLocks } from '../checkers/leftovers.ts'
import { type Client, DRIVERS, type Lab, openLab } from './lab.ts'
import { ADD, BEGIN, COMMIT, createLedger, DEADLOCKS, ROLLBACK } from './ledger/ledger.sql.ts'
import { combined, InsufficientFundsError, plainly, type Transfer } from './ledger/transfers.ts'
import { attack, type ReportProgress } from './attack.ts'
import { TERMINATE_ONE } from './transfers.sql.ts'

interface Size {
  readonly callers: number
  readonly seconds: number
  /** How many sessions must have been struck in the middle of a transaction. */
  readonly strikes: number
}

const ACCOUNTS = 10
/** Little enough that some transfers are refused. */
const INITIAL = 500
const MAX_AMOUNT = 100
const STRIKE_EVERY_MS = 40
/** Two of each driver, as four processes would have them. */
const CLIENTS = [...DRIVERS, ...DRIVERS]

/**
 * Sixty-four callers move money among ten accounts in random directions, half of them in plain transactions with ordered row locks,
 * half through combine, on four pools of two drivers; first undisturbed, then while sessions are terminated. No deadlock, no money
 * made or lost, every transfer that was told to be done is recorded exactly once, and none that was told to have failed. The same
 * without the order must deadlock.
 */
export const transfers = attack<Size>({
  name: 'transfers',
  about: 'money among ten accounts in random directions, plain and combined, also while sessions are terminated',
  full: { callers: 64, seconds: 20, strikes: 50 },
  small: { callers: 64, seconds: 1.5, strikes: 3 },
  async run(size, reportProgress) {
    const lab = await openLab()
    try {
      const results: ResultRow[] = []
      const goals: Goal[] = []
      for (const struck of [false, true]) {
        const phase = struck ? 'sessions terminated' : 'undisturbed'
        const row = await play(lab, size, struck, reportProgress)
        results.push({ phase, ...row })
        goals.push(
          goal(`${phase}: deadlocks`, row.deadlocks, '=', 0),
          goal(`${phase}: the total is off by`, row['total off by'], '=', 0),
          goal(`${phase}: balances that their transfers do not explain`, row['wrong balances'], '=', 0),
          goal(`${phase}: told to be done and not recorded`, row.lost, '=', 0),
          goal(`${phase}: recorded twice`, row.twice, '=', 0),
          goal(`${phase}: told to have failed and recorded`, row.phantom, '=', 0),
          goal(`${phase}: other errors than insufficient funds`, row['other errors'], '=', 0),
          goal(`${phase}: locks left`, row['locks left'], '=', 0),
        )
        if (struck)
          goals.push(goal('sessions terminated in the middle of a transaction', row.struck, '>=', size.strikes))
      }
      reportProgress('transfers: without the order')
      const deadlocks = await withoutOrder(lab, size)
      goals.push(goal('control, the same without the order: deadlocks', deadlocks, '>=', 1))
      return { results, goals }
    } finally {
      await lab.close()
    }
  },
})

async function play(lab: Lab, size: Size, strikes: boolean, reportProgress: ReportProgress) {
  await lab.admin.query(createLedger(ACCOUNTS, INITIAL))
  const before = await deadlocksSoFar(lab)
  const clients = CLIENTS.map((driver) => lab.client(driver, lab.url('direct'), { poolSize: 8 }))
  const ways = clients.flatMap(({ lockstep }) => [plainly(lockstep), combined(lockstep)])
  const told = new ReportedTransfers()
  const until = performance.now() + size.seconds * 1000
  const callers = Array.from({ length: size.callers }, async (_, caller) => {
    const way = ways[caller % ways.length] as (transfer: Transfer) => Promise<true>
    for (let number = 0; performance.now() < until; number++) {
      await told.make(randomTransfer(`${caller}-${number}`), way, (error) => error instanceof InsufficientFundsError)
    }
  })
  const striking = strikes ? strikeUntil(lab, until, reportProgress) : Promise.resolve(0)
  await Promise.all(callers)
  const struck = await striking
  const locksGone = await timeUntilNoLocks(lab.admin)
  await close(clients)
  const { off, wrong } = await bookErrors(lab.admin, ACCOUNTS, INITIAL)
  const { lost, twice, phantom } = await told.compare(lab.admin)
  return {
    transfers: told.count,
    done: told.countOf('done'),
    struck,
    deadlocks: (await deadlocksSoFar(lab)) - before,
    'total off by': off,
    'wrong balances': wrong,
    lost,
    twice,
    phantom,
    'other errors': told.surprises.length,
    'locks left': locksGone === undefined ? 1 : 0,
  }
}

function randomTransfer(id: string): Transfer {
  const source = randomInt(ACCOUNTS)
  const target = (source + 1 + randomInt(ACCOUNTS - 1)) % ACCOUNTS
  return { id, source, target, amount: 1 + randomInt(MAX_AMOUNT) }
}

async function strikeUntil(lab: Lab, until: number, reportProgress: ReportProgress): Promise<number> {
  let struck = 0
  while (performance.now() < until) {
    struck += (await lab.admin.query(TERMINATE_ONE)).rowCount ?? 0
    reportProgress(`transfers: ${struck} sessions terminated`)
    await sleep(STRIKE_EVERY_MS)
  }
  return struck
}

/** Every session adds what it has counted when it ends. */
async function deadlocksSoFar(lab: Lab): Promise<number> {
  const { rows } = await lab.admin.query<{ deadlocks: number }>(DEADLOCKS)
  return rows[0]?.deadlocks ?? 0
}

async function close(clients: readonly Client[]): Promise<void> {
  await Promise.all(clients.map((client) => client.close()))
}

/** The source first, then the target: two transfers in opposite directions wait for each other. */
async function withoutOrder(lab: Lab, size: Size): Promise<number> {
  await lab.admin.query(createLedger(ACCOUNTS, INITIAL * 1000))
  const pool = lab.pool(16)
  let deadlocks = 0
  const until = performance.now() + Math.max(3, size.seconds / 4) * 1000
  await Promise.all(
    Array.from({ length: 16 }, async () => {
      while (performance.now() < until && deadlocks < 5) {
        const { source, target, amount } = randomTransfer('')
        const client = await pool.connect()
        try {
          await client.query(BEGIN)
          await client.query(ADD, [source, -amount])
          await client.query(ADD, [target, amount])
          await client.query(COMMIT)
        } catch (error) {
          if ((error as { code?: string }).code !== '40P01') throw error
          deadlocks++
          await client.query(ROLLBACK)
        } finally {
          client.release()
        }
      }
    }),
  )
  return deadlocks
}
