import pg from 'pg'
import { Lockstep } from 'pg-lockstep'
import type { DeskOptions } from './options.ts'
import { progressLine } from './progressLine.ts'
import { Racers, type Tally } from './racers.ts'
import type { Result } from './results.ts'
import type { Screen } from './screen.ts'
import { CREATE_WALLETS, FILL_WALLET, READ_BALANCE } from './wallets.sql.ts'
import { type Way, type WayName, WAYS } from './ways.ts'

/** Runs every race and says how each round went. */
export async function runShow(
  url: string,
  options: DeskOptions,
  screen: Screen,
  signal: AbortSignal,
): Promise<Result[]> {
  const pool = new pg.Pool({ connectionString: url, application_name: 'lockstep-desk', max: 2 })
  pool.on('error', () => {})
  let racers: Racers | undefined
  try {
    signal.throwIfAborted()
    await new Lockstep(pool).migrate()
    await pool.query(CREATE_WALLETS)
    signal.throwIfAborted()
    screen.say('The schema is migrated. Two racers come to the start …')
    racers = await Racers.start(url, signal)
    screen.say(
      `They are the processes ${racers.pids.join(' and ')}; each adds 1 to a wallet, ${options.increments} times a round.`,
    )
    const results: Result[] = []
    for (const name of Object.keys(WAYS) as WayName[]) {
      results.push(await contest(name, results.length + 1, { pool, racers, options, screen, signal }))
    }
    return results
  } finally {
    screen.clear()
    await racers?.stop()
    await pool.end()
  }
}

interface Stage {
  readonly pool: pg.Pool
  readonly racers: Racers
  readonly options: DeskOptions
  readonly screen: Screen
  readonly signal: AbortSignal
}

async function contest(name: WayName, number: number, stage: Stage): Promise<Result> {
  const way: Way = WAYS[name]
  stage.screen.say('', `${number}. ${way.title}`, `   ${way.why}`)
  const sum = { confirmed: 0, failed: 0, balance: 0, tookMs: 0 }
  for (let round = 1; round <= stage.options.rounds; round++) {
    const result = await runRound(name, stage)
    sum.confirmed += result.confirmed
    sum.failed += result.failed
    sum.balance += result.balance
    sum.tookMs += result.tookMs
    stage.screen.say(`   round ${round}: ${outcome(result)}`)
  }
  return { way, ...sum }
}

type Round = Omit<Result, 'way'>

async function runRound(name: WayName, { pool, racers, options, screen, signal }: Stage): Promise<Round> {
  signal.throwIfAborted()
  const { wallet } = WAYS[name]
  await pool.query(FILL_WALLET, [wallet])
  const tallies: Tally[] = racers.pids.map(() => ({ confirmed: 0, failed: 0 }))
  const draw = (): void =>
    screen.show(tallies.map((tally, index) => progressLine(index + 1, tally, options.increments, screen.columns)))
  const startedAt = performance.now()
  const finished = await racers.race({ way: name, increments: options.increments }, signal, (index, tally) => {
    tallies[index] = tally
    draw()
  })
  const tookMs = performance.now() - startedAt
  const { rows } = await pool.query<{ balance: number }>(READ_BALANCE, [wallet])
  return {
    confirmed: finished.reduce((sum, tally) => sum + tally.confirmed, 0),
    failed: finished.reduce((sum, tally) => sum + tally.failed, 0),
    balance: rows[0]?.balance ?? 0,
    tookMs,
  }
}

function outcome({ confirmed, failed, balance }: Round): string {
  const lost = confirmed - balance
  const failures = failed === 0 ? '' : `${failed} of ${confirmed + failed} failed with 40001; `
  const verdict = lost > 0 ? `${lost} LOST` : failed > 0 ? 'none lost' : 'exact'
  return `${failures}${confirmed} increments confirmed, the wallet holds ${balance}: ${verdict}`
}
