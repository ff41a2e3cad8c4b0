/**
 * Lockstep's adapter of github.com/hardbyte/postgresql-job-queue-benchmarking, by its guide for adapters: a process that enqueues jobs and does
 * them, and prints a line of JSON for each thing that it measured. Public entry points only.
 */
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { CommitOutcomeUnknownError, type Lockstep, perEvent } from 'pg-lockstep'
import { on } from 'pg-lockstep/observe'
import type pg from 'pg'
import { type Job, jobsOf, open, SHARDS, WORKER, workerOf } from './jobs.ts'
import { Latencies } from './latencies.ts'
import { CREATE_LEDGER, RECORD_BATCH } from './publicHarness.sql.ts'

const env = process.env
const number = (name: string, otherwise: number): number => Number(env[name] ?? otherwise)

const settings = {
  url: env['DATABASE_URL'] ?? '',
  instance: number('BENCH_INSTANCE_ID', 0),
  mode: env['PRODUCER_MODE'] ?? 'fixed',
  pacing: env['PRODUCER_PACING'] ?? 'adapter',
  rate: number('PRODUCER_RATE', 800),
  rateFile: env['PRODUCER_RATE_CONTROL_FILE'],
  targetDepth: number('TARGET_DEPTH', 1000),
  workers: number('WORKER_COUNT', 32),
  padding: 'x'.repeat(Math.max(0, number('JOB_PAYLOAD_BYTES', 256) - 64)),
  workMs: number('JOB_WORK_MS', 1),
  batchMax: number('PRODUCER_BATCH_MAX', 128),
  batchMs: number('PRODUCER_BATCH_MS', 10),
  sampleS: number('SAMPLE_EVERY_S', 5),
  /** What does the jobs: `consumer`, in a transaction with its position, or `dispatcher`, which delivers at least once, without a transaction. */
  worker: env['LOCKSTEP_WORKER'] ?? 'consumer',
  /** Each batch and each job leaves a row, for the audit. */
  audited: env['LOCKSTEP_AUDIT'] === '1',
}
const SYSTEM = env['LOCKSTEP_SYSTEM'] ?? 'lockstep'
const observes = settings.instance === 0

/** More transactions than that at once are not quicker, and each needs a connection. */
const MOST_TRANSACTIONS = 32
/** Beside the workers': for reading, leases, listening, marking and the depth. */
const OTHER_CONNECTIONS = 8
/** How many batches are on their way to the server at once. */
const PRODUCERS = 4
const DEPTH_EVERY_MS = 200
const STEP_MS = 10

const stop = new AbortController()
const tables = (JSON.parse(readFileSync(env['LOCKSTEP_MANIFEST'] ?? '', 'utf8')) as { event_tables: string[] })
  .event_tables

function emit(record: object): void {
  process.stdout.write(`${JSON.stringify({ ...record, instance_id: settings.instance })}\n`)
}

/** What has happened since the process began. */
const counts = { enqueued: 0, underWay: 0, done: 0 }
const [calls, claims, ends] = [new Latencies(), new Latencies(), new Latencies()] as const

/** How much is to be enqueued now. */
class Producer {
  #credit = 0
  #batches = settings.instance * 7919
  /** The depth, and what had been enqueued and done when it was read. */
  #read = { depth: 0, enqueued: 0, done: 0 }
  readonly #lockstep: Lockstep

  constructor(lockstep: Lockstep) {
    this.#lockstep = lockstep
  }

  get depth(): number {
    return this.#read.depth
  }

  set depth(depth: number) {
    this.#read = { depth, enqueued: counts.enqueued, done: counts.done }
  }

  /** In high-load phases the harness raises the rate in a file, and its own pace stays: what it sends is raised as well. */
  targetRate(): number {
    if (settings.rateFile === undefined) return settings.rate
    try {
      const rate = Number.parseFloat(readFileSync(settings.rateFile, 'utf8'))
      return Number.isFinite(rate) ? rate : settings.rate
    } catch {
      return settings.rate
    }
  }

  /** Always reads the harness's pace: the harness blocks forever if nothing reads it. */
  followHarness(): void {
    createInterface({ input: process.stdin }).on('line', (line) => {
      const jobs = Number(/^ENQUEUE (\d+)$/.exec(line)?.[1])
      if (settings.pacing !== 'harness' || !(jobs > 0)) return
      this.#credit += jobs * (this.targetRate() / Math.max(1, settings.rate))
    })
  }

  /** By the time that has passed, whatever the timers do. */
  async followClock(): Promise<void> {
    for (let last = performance.now(); !stop.signal.aborted;) {
      await sleep(settings.batchMs)
      const now = performance.now()
      this.#credit += (this.targetRate() * (now - last)) / 1000
      last = now
    }
  }

  async run(): Promise<void> {
    while (!stop.signal.aborted) {
      const count = Math.min(settings.batchMax, Math.floor(this.#due()))
      if (count < this.#least) await sleep(STEP_MS)
      else await this.#enqueue(count)
    }
  }

  /** Where the depth alone says when, an eighth of a batch is worth a transaction. */
  get #least(): number {
    return settings.mode === 'depth-target' ? Math.max(1, Math.min(settings.batchMax, settings.targetDepth) / 8) : 1
  }

  #due(): number {
    if (settings.mode !== 'depth-target') return this.#credit
    const { depth, enqueued, done } = this.#read
    return settings.targetDepth - (depth + counts.enqueued - enqueued + counts.underWay - (counts.done - done))
  }

  async #enqueue(count: number): Promise<void> {
    this.#credit -= count
    counts.underWay += count
    const jobs = jobsOf(this.#batches++, count, settings.padding)
    const startedAt = performance.now()
    try {
      await this.#lockstep.transaction({}, async (tx) => {
        if (settings.audited) await tx.query(RECORD_BATCH, [count])
        await tx.enqueueMany(jobs)
      })
      counts.enqueued += count
      calls.add((performance.now() - startedAt) / count)
    } catch (error) {
      log('enqueuing', error)
      // What may be there is not enqueued again. Nothing was acknowledged.
      if (!(error instanceof CommitOutcomeUnknownError)) this.#credit += count
      await sleep(STEP_MS)
    } finally {
      counts.underWay -= count
    }
  }
}

let logged = 0

function log(what: string, error: unknown): void {
  if (logged++ < 100)
    process.stderr.write(`[${SYSTEM}] ${what}: ${error instanceof Error ? error.message : String(error)}\n`)
}

function startWorker(lockstep: Lockstep): { readonly running: Promise<void> } {
  const begun = ({ at }: Job): void => claims.add(Date.now() - at)
  const done = ({ at }: Job): void => ends.add(Date.now() - at)
  on('outbox.delivered', ({ events }) => (counts.done += events.length))
  on('outbox.failed', ({ error }) => log('the worker', error))
  if (settings.worker === 'consumer') {
    const concurrency = Math.min(settings.workers, MOST_TRANSACTIONS)
    const { workMs, audited } = settings
    const consumer = workerOf(lockstep, { workMs, audited, begun, done }, { concurrency })
    return { running: consumer.run({ signal: stop.signal }) }
  }
  const sink = perEvent(
    { concurrency: settings.workers, processConcurrency: settings.workers },
    async ({ payload }) => {
      begun(payload as Job)
      if (settings.workMs > 0) await sleep(settings.workMs)
      done(payload as Job)
    },
  )
  return { running: lockstep.outbox.dispatcher({ name: WORKER, shards: SHARDS, sink }).run({ signal: stop.signal }) }
}

/** It has not run yet in the first moments, and while the server is away there is no answer. */
async function readDepth(lockstep: Lockstep, producer: Producer): Promise<void> {
  if (!observes) return
  while (!stop.signal.aborted) {
    const lag = await lockstep.outbox.lag(WORKER).catch(() => undefined)
    if (lag !== undefined) producer.depth = lag.events
    await sleep(DEPTH_EVERY_MS)
  }
}

async function sample(producer: Producer): Promise<void> {
  const everyMs = settings.sampleS * 1000
  await sleep(everyMs - (Date.now() % everyMs))
  let before = { ...counts, at: performance.now() }
  while (!stop.signal.aborted) {
    await sleep(everyMs - (Date.now() % everyMs), undefined, { signal: stop.signal }).catch(() => undefined)
    const now = { ...counts, at: performance.now() }
    const seconds = Math.max(0.001, (now.at - before.at) / 1000)
    const inWindow: (readonly [string, number, number])[] = []
    const latencies = { producer: calls, producer_call: calls, subscriber: claims, claim: claims, end_to_end: ends }
    for (const [name, list] of Object.entries(latencies)) {
      const [p50, p95, p99] = list.percentiles()
      inWindow.push([`${name}_p50_ms`, p50, 30], [`${name}_p95_ms`, p95, 30], [`${name}_p99_ms`, p99, 30])
    }
    const ofAll: (readonly [string, number, number])[] = [
      ['queue_depth', producer.depth, 0],
      ['producer_target_rate', settings.mode === 'fixed' ? producer.targetRate() : 0, 0],
    ]
    const metrics = [
      ...inWindow,
      ['enqueue_rate', (now.enqueued - before.enqueued) / seconds, seconds] as const,
      ['completion_rate', (now.done - before.done) / seconds, seconds] as const,
      ...(observes ? ofAll : []),
    ]
    const t = new Date().toISOString()
    for (const [metric, value, windowS] of metrics) {
      emit({
        t,
        system: SYSTEM,
        kind: 'adapter',
        subject_kind: 'adapter',
        subject: '',
        metric,
        value,
        window_s: windowS,
      })
    }
    before = now
  }
}

async function install(lockstep: Lockstep, pool: pg.Pool): Promise<void> {
  await lockstep.migrate()
  // Two replicas that begin at once would both make it.
  if (settings.audited) await lockstep.transaction({ lock: 'Bench:ledger' }, () => pool.query(CREATE_LEDGER))
}

async function main(): Promise<void> {
  const workers = open(settings.url, Math.min(settings.workers, MOST_TRANSACTIONS) + OTHER_CONNECTIONS)
  const writers = open(settings.url, PRODUCERS)
  await install(workers.lockstep, workers.pool)
  emit({
    kind: 'descriptor',
    system: SYSTEM,
    event_tables: tables,
    extensions: [],
    version: env['LOCKSTEP_VERSION'] ?? '',
    schema_version: '',
    db_name: new URL(settings.url).pathname.slice(1),
    started_at: new Date().toISOString(),
  })
  process.once('SIGTERM', () => stop.abort())
  process.once('SIGINT', () => stop.abort())
  const producer = new Producer(writers.lockstep)
  producer.followHarness()
  const { running } = startWorker(workers.lockstep)
  const paced = settings.mode === 'fixed' && settings.pacing !== 'harness' ? [producer.followClock()] : []
  const producing = Array.from({ length: PRODUCERS }, () => producer.run())
  await Promise.all([running, readDepth(workers.lockstep, producer), sample(producer), ...paced, ...producing])
  await Promise.all([workers.lockstep.close(), writers.lockstep.close()])
  await Promise.all([workers.pool.end(), writers.pool.end()])
  process.exit(0)
}

await main()
