import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { Lockstep, perEvent } from 'pg-lockstep'
import { Bank } from '../../examples/two-databases/bank.ts'
import { evidence, goal } from '../../tools/judge/report.ts'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { type KillableProcess, startProcess } from '../faults/killableProcess.ts'
import type { Random } from '../seed.ts'
import { until } from '../until.ts'
import { attack, type ReportProgress } from './attack.ts'
import { quiet } from './client.ts'
import { CREDIT, DATABASES, ENTRIES, HELD, nameOfAccount, STRANDED } from './twoDatabases.sql.ts'

interface Size {
  readonly accounts: number
  readonly processes: number
  readonly kills: number
  readonly crashes: number
  /** So many transfers are made between two faults, at the least. */
  readonly between: number
}

const BALANCE = 1000
const SETTLED_MS = 300_000

/**
 * The bank of examples/two-databases: money between accounts in two PostgreSQL servers, by outbox and inbox. Processes are killed with -9, servers
 * crash, accounts move. In the end every debit has one credit or one refund, and the total is what it was. The control credits what a
 * replay sends again, without the inbox.
 */
export const twoDatabases = attack<Size>({
  name: 'two-databases',
  about: 'money between two PostgreSQL servers under kills and crashes: each debit has one credit or one refund',
  full: { accounts: 200, processes: 4, kills: 60, crashes: 10, between: 300 },
  small: { accounts: 20, processes: 2, kills: 2, crashes: 1, between: 30 },
  async run(size, reportProgress, random) {
    const servers = [await startPostgres(), await startPostgres()]
    const pools = servers.map((server) => quiet(new pg.Pool({ connectionString: server.url(), max: 4 })))
    const bank = new Bank(pools.map((pool, place) => ({ name: DATABASES[place] as string, pool })))
    try {
      await bank.migrate()
      for (let n = 0; n < size.accounts; n++) await bank.open(nameOfAccount(n), BALANCE)
      const total = size.accounts * BALANCE
      const held = (): Promise<number> => sum(pools, HELD, 'held')
      const { made, kills, crashes } = await strike(servers, size, random, reportProgress, async () => {
        reportProgress('two-databases: waiting for what is on its way')
        return until(async () => (await held()) >= total, SETTLED_MS)
      })
      const books = await readBooks(pools)
      const [kept, stranded] = [await held(), await sum(pools, STRANDED, 'stranded')]
      reportProgress('two-databases: everything once more')
      const again = (await bank.replay('north', 'south')) + (await bank.replay('south', 'north'))
      const afterReplay = await held()
      const afterControl = await replayWithoutInbox(pools).then(held)
      return {
        results: [
          {
            transfers: made,
            kills,
            crashes,
            bookings: books.entries,
            total,
            kept,
            replayed: again,
            control: afterControl,
          },
        ],
        goals: [
          goal('money lost or made', Math.abs(total - kept), '=', 0),
          goal('money on an account that has moved away', stranded, '=', 0),
          goal('transfers without exactly one debit, and one credit or refund', books.wrong, '=', 0),
          goal('money lost or made by a replay of everything', Math.abs(afterReplay - kept), '=', 0),
          goal('control, a replay without the inbox: money made', afterControl - afterReplay, '>=', 1),
          evidence('processes killed', kills, '=', size.kills),
          evidence('servers crashed', crashes, '=', size.crashes),
          evidence('transfers', made, '>=', (size.kills + size.crashes) * size.between),
          evidence('events of the replay', again, '>=', 1),
        ],
      }
    } finally {
      await bank.close()
      await Promise.all(pools.map((pool) => pool.end()))
      await Promise.all(servers.map((server) => server.stop('immediate')))
    }
  },
})

interface Struck {
  readonly made: number
  readonly kills: number
  readonly crashes: number
}

/** Transfers and faults; then transfers stop, deliveries continue until `settled`, and everything ends. */
async function strike(
  servers: readonly PostgresServer[],
  size: Size,
  random: Random,
  reportProgress: ReportProgress,
  settled: () => Promise<unknown>,
): Promise<Struck> {
  let [made, kills, crashes, started] = [0, 0, 0, 0]
  const start = (): KillableProcess => {
    const args = [servers.map((server) => server.url()).join(), String(size.accounts), `p${started++}`]
    const process = startProcess(new URL('processes/bankProcess.ts', import.meta.url), args)
    process.child.on('message', ({ done = 0 }: { done?: number }) => {
      made += done
    })
    return process
  }
  const processes = Array.from({ length: size.processes }, start)
  try {
    const faults = random.shuffled([
      ...Array.from({ length: size.kills }, () => 'kill'),
      ...Array.from({ length: size.crashes }, () => 'crash'),
    ])
    for (const fault of faults) {
      const before = made
      await until(() => made - before >= size.between)
      await sleep(random.below(50))
      if (fault === 'kill') {
        const place = random.below(processes.length)
        await processes[place]?.kill()
        processes[place] = start()
        kills++
      } else {
        const server = random.pick(servers)
        await server.crash()
        await server.start()
        crashes++
      }
      reportProgress(`two-databases: ${kills} kills, ${crashes} crashes, ${made} transfers`)
    }
    await Promise.all(processes.map(stopped))
    await settled()
    return { made, kills, crashes }
  } finally {
    await Promise.all(processes.map((process) => process.kill()))
  }
}

/** No more transfers begin, and those that had begun have ended. */
async function stopped({ child }: KillableProcess): Promise<void> {
  // One listener for all messages: those that arrive together are emitted one after the other, before a promise of the first continues.
  const said = new Promise<void>((resolve, reject) => {
    child.on('message', ({ stopped: end }: { stopped?: true }) => {
      if (end === true) resolve()
    })
    child.once('exit', () => reject(new Error('a process of the bank ended before it had stopped')))
  })
  child.send('stop')
  await said
}

async function sum(pools: readonly pg.Pool[], query: string, column: string): Promise<number> {
  const found = await Promise.all(pools.map((pool) => pool.query<Record<string, number>>(query)))
  return found.reduce((total, { rows }) => total + (rows[0]?.[column] ?? Number.NaN), 0)
}

/** A transfer is right if it took money once, and brought the same amount once: to its account, or back. */
async function readBooks(pools: readonly pg.Pool[]): Promise<{ readonly entries: number; readonly wrong: number }> {
  const amounts = new Map<string, number[]>()
  let entries = 0
  for (const pool of pools) {
    const { rows } = await pool.query<{ transfer: string; amount: number }>(ENTRIES)
    entries += rows.length
    for (const { transfer, amount } of rows) amounts.set(transfer, [...(amounts.get(transfer) ?? []), amount])
  }
  const wrong = [...amounts.values()].filter(
    ([one, other, ...more]) => more.length > 0 || one === undefined || one + (other ?? 0) !== 0,
  )
  return { entries, wrong: wrong.length }
}

async function replayWithoutInbox(pools: readonly pg.Pool[]): Promise<void> {
  const [north, south] = pools.map((pool) => new Lockstep(pool)) as [Lockstep<never, pg.Pool>, Lockstep<never, pg.Pool>]
  const sink = perEvent({}, async ({ key, payload }) => {
    const { kind, transfer } = payload as { kind: string; transfer?: { amount: number } }
    if (kind === 'credit') await south.transaction({}, (tx) => tx.query(CREDIT, [key, transfer?.amount]))
  })
  await north.outbox.replay({ sink, topic: 'to-south' })
  await Promise.all([north.close(), south.close()])
}
