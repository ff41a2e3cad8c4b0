import pg from 'pg'
import { loadPeer } from '../harness/peers.ts'
import { CONNECTIONS, eventOf, inChunks } from '../outboxEvents.ts'
import { inTransaction } from './byHand.ts'
import { type Contender, CONCURRENCY, type ContenderKind, type Payload } from './contender.ts'
import { CREATE_EFFECTS, INSERT_EFFECT, INSERT_EFFECTS } from './effects.sql.ts'

interface SendOptions {
  readonly singletonKey: string
  readonly db: { executeSql(text: string, values?: unknown[]): Promise<{ rows: unknown[] }> }
}

interface Job {
  readonly data: { readonly payload: Payload }
}

/** The part of pg-boss that is used. */
interface Boss {
  on(event: 'error', listener: (error: Error) => void): unknown
  start(): Promise<unknown>
  stop(options: { graceful: boolean }): Promise<void>
  createQueue(name: string, options: { policy: string; notify?: boolean }): Promise<void>
  send(name: string, data: object, options: SendOptions): Promise<string | null>
  insert(name: string, jobs: { data: object; singletonKey: string }[]): Promise<unknown>
  work(name: string, options: object, handler: (jobs: Job[]) => Promise<void>): Promise<string>
  offWork(name: string, options: { wait: boolean }): Promise<void>
}

interface PgBossModule {
  readonly PgBoss: new (options: object) => Boss
}

const QUEUE = 'trades'
/** A batch may hold one job of a key; a backlog comes with the keys in turn, so that every batch is full. */
const BATCH = 1000

const WORKING = {
  batchSize: BATCH,
  pollingIntervalSeconds: 0.5,
  burstWhenBatchFull: true,
  notifyPollingIntervalSeconds: 0.5,
}

/** Its upkeep deletes what is done: that is left out, for its benefit. */
const QUIET = { supervise: false, schedule: false, useListenNotify: true }

export const pgBoss: ContenderKind = {
  order: 'strict, by the start of transactions',
  settings: `A queue with policy key_strict_fifo and the key as singletonKey. send() with the transaction's client. One worker, batchSize ${BATCH},
burstWhenBatchFull, so that it does not wait between full batches; pollingIntervalSeconds 0.5, the least it takes. NOTIFY where it is
delivered from, and not where enqueuing is timed: each at its best. A backlog comes with the keys in turn: where two jobs of a batch have
one key, the batch comes back empty, again and again. Its upkeep (supervise, schedule) is off.`,
  most: 60_000,
  open: (url) => open(url, false),
}

/** The jobs of a batch have their effects by one INSERT. */
export const pgBossLists: ContenderKind = {
  order: 'strict, by the start of transactions',
  settings: 'The same worker; one INSERT for each batch.',
  most: 60_000,
  open: (url) => open(url, true),
}

async function open(url: string, lists: boolean): Promise<Contender> {
  const { PgBoss } = await loadPeer<PgBossModule>('pg-boss')
  const boss = new PgBoss({ connectionString: url, max: CONNECTIONS, ...QUIET })
  boss.on('error', (error) => process.stderr.write(`pg-boss: ${error.message}\n`))
  const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS })
  let started: Promise<unknown> | undefined
  let filled = 0
  const ready = (): Promise<unknown> => (started ??= boss.start())
  const jobOf = (number: number): { data: object; singletonKey: string } => {
    const { key, payload, headers } = eventOf(number)
    return { data: { payload, headers }, singletonKey: key }
  }
  return {
    async install(purpose) {
      await ready()
      await boss.createQueue(QUEUE, { policy: 'key_strict_fifo', notify: purpose === 'deliver' })
      await pool.query(CREATE_EFFECTS)
    },
    async enqueue(number) {
      await ready()
      const { data, singletonKey } = jobOf(number)
      await inTransaction(pool, (client) =>
        boss.send(QUEUE, data, {
          singletonKey,
          db: { executeSql: (text, values) => client.query(text, values) },
        }),
      )
    },
    async fill(count) {
      await ready()
      const first = filled
      filled += count
      return inChunks(
        count,
        BATCH,
        async (numbers) =>
          void (await boss.insert(
            QUEUE,
            numbers.map((number) => jobOf(first + number)),
          )),
      )
    },
    async deliver(take) {
      await ready()
      await boss.work(QUEUE, WORKING, (jobs) => {
        for (const { data } of jobs) take(data.payload)
        return Promise.resolve()
      })
      return () => boss.offWork(QUEUE, { wait: true })
    },
    async consume(handled) {
      await ready()
      // A batch has at most one job of a key: all of its jobs can be handled in parallel.
      await boss.work(QUEUE, WORKING, async (jobs) => {
        if (lists) {
          const payloads = jobs.map(({ data }) => data.payload)
          const keys = payloads.map(({ id }) => eventOf(id).key)
          const texts = payloads.map((payload) => JSON.stringify(payload))
          await pool.query(INSERT_EFFECTS, [keys, payloads.map(({ id }) => id), texts])
          for (const _ of jobs) handled()
          return
        }
        const left = jobs.values()
        const handle = async (): Promise<void> => {
          for (const { data } of left) {
            const { payload } = data
            const { key } = eventOf(payload.id)
            await pool.query(INSERT_EFFECT, [key, payload.id, JSON.stringify(payload)])
            handled()
          }
        }
        await Promise.all(Array.from({ length: CONCURRENCY }, handle))
      })
      return () => boss.offWork(QUEUE, { wait: true })
    },
    async close() {
      if (started !== undefined) await boss.stop({ graceful: false })
      await pool.end()
    },
  }
}
