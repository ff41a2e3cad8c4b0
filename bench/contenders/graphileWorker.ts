import pg from 'pg'
import { loadPeer } from '../harness/peers.ts'
import { CONNECTIONS, eventOf, inChunks } from '../outboxEvents.ts'
import { inTransaction } from './byHand.ts'
import { CONCURRENCY, type Contender, type ContenderKind, type Payload } from './contender.ts'
import { CREATE_EFFECTS, INSERT_EFFECT } from './effects.sql.ts'
import { ADD_JOB } from './graphileWorker.sql.ts'

interface Job {
  readonly identifier: string
  readonly payload: object
  readonly queueName?: string
}

/** The part of graphile-worker that is used. */
interface GraphileWorker {
  makeWorkerUtils(options: object): Promise<{
    migrate(): Promise<void>
    addJobs(jobs: Job[]): Promise<unknown>
    release(): Promise<void>
  }>
  run(options: object): Promise<{ stop(): Promise<void> }>
  readonly Logger: new (factory: () => () => void) => object
}

const TASK = 'trades'
const FILL = 1000
const BATCHES = { completeJobBatchDelay: 0, failJobBatchDelay: 0 }
const LOCAL_QUEUE = { localQueue: { size: 500 } }

const SETTINGS = `add_job() in the transaction. The worker as its page on performance has it: concurrentJobs 24, maxPoolSize 25,
completeJobBatchDelay 0`

/** One queue a key: jobs of a queue run one after the other. */
export const graphileNamed: ContenderKind = {
  order: 'per queue, until a job fails',
  settings: `${SETTINGS}, but without a local queue. The key is the queue's name.`,
  most: 60_000,
  open: (url) => open(url, true, {}),
}

/** The same, with jobs of different queues fetched many at a time: since 0.18 that keeps a queue's order. */
export const graphileLocalQueue: ContenderKind = {
  order: 'per queue, until a job fails',
  settings: `${SETTINGS}, localQueue of 500. The key is the queue's name. A backlog comes with the keys in turn, the best for it: of each fetch
it keeps one job a queue.`,
  most: 60_000,
  open: (url) => open(url, true, LOCAL_QUEUE),
}

/** Without the order, as fast as it goes: the generous comparison. */
export const graphileUnordered: ContenderKind = {
  order: 'none',
  settings: `${SETTINGS}, localQueue of 500. No queue names.`,
  most: 60_000,
  open: (url) => open(url, false, LOCAL_QUEUE),
}

async function open(url: string, named: boolean, fetching: object): Promise<Contender> {
  const worker = await loadPeer<GraphileWorker>('graphile-worker')
  const logger = new worker.Logger(() => () => undefined)
  const utils = await worker.makeWorkerUtils({ connectionString: url, logger })
  const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS })
  let filled = 0
  const jobOf = (number: number): Job => {
    const { key, payload, headers } = eventOf(number)
    return { identifier: TASK, payload: { payload, headers }, ...(named ? { queueName: key } : {}) }
  }
  return {
    async install() {
      await utils.migrate()
      await pool.query(CREATE_EFFECTS)
    },
    enqueue: (number) => {
      const { identifier, payload, queueName = null } = jobOf(number)
      return inTransaction(pool, (client) => client.query(ADD_JOB, [identifier, JSON.stringify(payload), queueName]))
    },
    fill(count) {
      const first = filled
      filled += count
      const add = (numbers: number[]): Promise<unknown> => utils.addJobs(numbers.map((number) => jobOf(first + number)))
      return inChunks(count, FILL, async (numbers) => void (await add(numbers)))
    },
    async deliver(take) {
      const runner = await worker.run({
        logger,
        noHandleSignals: true,
        preset: { worker: { connectionString: url, concurrentJobs: 24, maxPoolSize: 25, ...BATCHES, ...fetching } },
        taskList: { [TASK]: (data: { payload: Payload }) => take(data.payload) },
      })
      return () => runner.stop()
    },
    async consume(handled) {
      const runner = await worker.run({
        logger,
        noHandleSignals: true,
        preset: {
          worker: {
            connectionString: url,
            concurrentJobs: CONCURRENCY,
            maxPoolSize: CONCURRENCY + 2,
            ...BATCHES,
            ...fetching,
          },
        },
        taskList: {
          [TASK]: async ({ payload }: { payload: Payload }) => {
            const { key } = eventOf(payload.id)
            await pool.query(INSERT_EFFECT, [key, payload.id, JSON.stringify(payload)])
            handled()
          },
        },
      })
      return () => runner.stop()
    },
    async close() {
      await utils.release()
      await pool.end()
    },
  }
}
