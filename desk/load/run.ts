import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { random as randomOf } from '../../proofs/seed.ts'
import { SYSTEMS } from '../systems.ts'
import { type Bursts, measureBursts } from './bursts.ts'
import { Client } from './client.ts'
import { type ConsoleShare, watchConsole, type WatchedConsole } from './consoleShare.ts'
import { EmptyTransactions } from './emptyTransactions.ts'
import { type Examined, examine } from './examine.ts'
import { FaultMaker, type Struck } from './faults.ts'
import { type Limits, measureLimits } from './limits.ts'
import { EXCHANGE_ADDRESS, ROUNDS } from './load.sql.ts'
import type { LoadOptions } from './options.ts'
import type { Target } from './ownDesk.ts'
import { untilQuiet } from './untilQuiet.ts'
import { instanceSender } from './senders/instances.ts'
import { PositionSender, type SignalDurations } from './senders/positions.ts'
import type { Sender, SenderContext } from './senders/sender.ts'
import { tradeSender } from './senders/trades.ts'
import { transferSender } from './senders/transfers.ts'
import { walletSender } from './senders/wallets.ts'
import { Durations } from './tally.ts'

/** Everything a run has shown. */
export interface Outcome {
  readonly client: Client
  readonly senders: readonly Sender[]
  readonly examined: readonly Examined[]
  readonly limits: Limits
  readonly bursts: Bursts
  /** Of signals while the exchange behaved: those that had their symbol to themselves, and those of hot symbols. */
  readonly signals: SignalDurations
  /** Of the reconciler's rounds while the exchange behaved. */
  readonly rounds: Durations
  readonly struck: Struck | undefined
  /** Undefined on a server that is not ours: roles are not made there. */
  readonly console: ConsoleShare | undefined
  readonly quiet: boolean
  /** Requests that were neither answered nor reset. */
  readonly hanging: number
  /** An empty transaction beside all this. */
  readonly emptyP99Ms: number
}

/** The share of the time before the faults begin: signals are measured in it. */
const CALM_SHARE = 0.3
/** Faults that struck nothing are given so many times the time. */
const PROLONGED_TIMES = 3
/** When no answer has come for so long, none will: the desk waits for nothing longer than a third of this. */
const HANGING_MS = 60_000
/** So many may be in progress: a desk that is slow is not sent more and more. */
const MOST_AT_ONCE = 600

export async function run(
  target: Target,
  options: LoadOptions,
  tell: (line: string) => void,
  signal: AbortSignal,
): Promise<Outcome> {
  const pool = new pg.Pool({ connectionString: target.databaseUrl, max: 3, application_name: 'load' })
  const client = new Client(target.origin)
  const empty = new EmptyTransactions(target.databaseUrl)
  let watched: WatchedConsole | undefined
  try {
    const random = randomOf(options.seed, 'requests')
    const { url: exchangeUrl } = (await pool.query<{ url: string }>(EXCHANGE_ADDRESS)).rows[0] as { url: string }
    const prefix = `l${Date.now().toString(36)}`
    const context: SenderContext = { client, random, contention: options.contention, prefix, exchangeUrl }
    const positions = new PositionSender(context)
    const senders = [
      tradeSender(context),
      instanceSender(context),
      positions,
      transferSender(context),
      walletSender(context),
    ]
    tell('making accounts, wallets and instances')
    await orAborted(Promise.all(senders.map((sender) => sender.prepare())), signal)
    tell('measuring what a lock and signals in flight cost')
    const { databaseUrl } = target
    const { processes } = options
    const limits = await orAborted(measureLimits({ client, databaseUrl, exchangeUrl, processes, positions }), signal)
    tell('sending bursts of signals and of transfers')
    const bursts = await orAborted(measureBursts(client, prefix, options.burst), signal)
    const began = Date.now()
    const signals = { alone: new Durations(), hot: new Durations() }
    positions.durations = signals
    const maker = new FaultMaker({
      target,
      processes,
      pool,
      client,
      random: randomOf(options.seed, 'faults'),
      exchangeUrl,
    })
    const totalMs = options.minutes * 60_000
    const calmMs = options.faults ? totalMs * CALM_SHARE : totalMs
    if (target.ours) watched = await watchConsole(databaseUrl, pool)
    let struckAll = !options.faults
    const sending = sendAll(client, senders, options, totalMs, () => !struckAll, tell, signal)
    await sleep(calmMs, undefined, { signal }).catch(() => undefined)
    positions.durations = undefined
    if (options.faults) await faultsFor(maker, totalMs - calmMs, signal).finally(() => (struckAll = true))
    const hanging = await sending
    const share = await watched?.share()
    signal.throwIfAborted()
    const quiet = await untilQuiet(pool, tell)
    tell('looking at what is there')
    return {
      client,
      senders,
      examined: await examine(pool, SYSTEMS, senders),
      limits,
      bursts,
      signals,
      rounds: await roundsSince(pool, began, maker.badDays),
      struck: options.faults ? maker.struck : undefined,
      console: share,
      quiet,
      hanging,
      emptyP99Ms: empty.p99Ms,
    }
  } finally {
    await watched?.close()
    client.close()
    await empty.close()
    await pool.end()
  }
}

/** What continues behind it ends by itself, now that its client is closed. */
async function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted()
  const aborted = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true })
  })
  return Promise.race([work, aborted])
}

async function faultsFor(maker: FaultMaker, ms: number, signal: AbortSignal): Promise<void> {
  const [over, limit] = [AbortSignal.timeout(ms), AbortSignal.timeout(PROLONGED_TIMES * ms)]
  await maker.run(AbortSignal.any([over, signal]), limit, signal)
}

/**
 * Requests at the wanted rate, whether the earlier ones are answered or not, and as long as faults need some. Then waits for all answers, and
 * gives how many requests will never have one.
 */
async function sendAll(
  client: Client,
  senders: readonly Sender[],
  { rate, seed }: LoadOptions,
  forMs: number,
  needsMore: () => boolean,
  tell: (line: string) => void,
  signal: AbortSignal,
): Promise<number> {
  const random = randomOf(seed, 'turns')
  const turns = senders.flatMap((sender) => Array<Sender>(sender.weight).fill(sender))
  const underWay = new Set<Promise<void>>()
  const failures: unknown[] = []
  const began = performance.now()
  let sent = 0
  for (
    let elapsedMs = 0;
    (elapsedMs < forMs || needsMore()) && !signal.aborted;
    elapsedMs = performance.now() - began
  ) {
    for (; sent < (elapsedMs / 1000) * rate && underWay.size < MOST_AT_ONCE; sent++) {
      const work = random
        .pick(turns)
        .send()
        .catch((error: unknown) => void failures.push(error))
        .finally(() => underWay.delete(work))
      underWay.add(work)
    }
    tell(`${Math.round(elapsedMs / 1000)} of ${Math.round(forMs / 1000)} s, ${sent} sent, ${underWay.size} under way`)
    await sleep(20)
  }
  const isOver = (): boolean => performance.now() - client.lastEnd > HANGING_MS && client.underWay.length > 0
  while (underWay.size > 0 && !signal.aborted && !isOver()) {
    tell(`${underWay.size} requests are in progress`)
    await Promise.race([...underWay, sleep(1000)])
  }
  const hanging = client.underWay.length
  client.close()
  await Promise.all(underWay)
  // What hung has failed now, and is counted.
  if (failures.length > 0 && hanging === 0) throw failures[0]
  return hanging
}

async function roundsSince(pool: pg.Pool, began: number, badDays: FaultMaker['badDays']): Promise<Durations> {
  const { rows } = await pool.query<{ took_ms: number; ended: string }>(ROUNDS, [began])
  const durations = new Durations()
  for (const { took_ms: tookMs, ended } of rows) {
    const [from, to] = [Number(ended) - tookMs, Number(ended)]
    if (!badDays.some(([start, end]) => from <= end && to >= start)) durations.add(tookMs)
  }
  return durations
}
