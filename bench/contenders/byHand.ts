import { Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { eventOf, CONNECTIONS, inChunks, valuesOf } from '../outboxEvents.ts'
import {
  BEGIN,
  COMMIT,
  CREATE_PENDING,
  CREATE_PLAIN,
  ENQUEUE_IN_SQL,
  FILL_PENDING,
  FILL_PLAIN,
  INSERT_AND_NOTIFY,
  INSERT_PENDING,
  INSERT_PLAIN,
  LISTEN,
  MARK_SENT,
  READ_PLAIN,
  ROLLBACK,
  TAKE_PENDING,
} from './byHand.sql.ts'
import { CONCURRENCY, type ContenderKind, type Payload } from './contender.ts'
import { CREATE_EFFECTS, INSERT_EFFECT } from './effects.sql.ts'

/** As many as there are keys: the best for those who take one event of a key at a time. */
const BATCH = 1000

/** An event as a plain row: the lowest cost of storing events with the data. */
export const plainInsert: ContenderKind = {
  order: 'none',
  settings: `BEGIN; ${INSERT_PLAIN}; COMMIT on ${CONNECTIONS} connections.`,
  enqueueOnly: true,
  open(url) {
    const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS })
    return Promise.resolve({
      install: async () => void (await pool.query(CREATE_PLAIN)),
      enqueue: (number) => inTransaction(pool, (client) => client.query(INSERT_PLAIN, valuesOf(number))),
      fill: notDrained,
      deliver: notDrained,
      close: () => pool.end(),
    })
  },
}

/** The same without BEGIN and COMMIT around it: one message, and nothing else that belongs to it. */
export const plainInsertAlone: ContenderKind = {
  order: 'none',
  settings: `${INSERT_PLAIN}, alone, on ${CONNECTIONS} connections.`,
  enqueueOnly: true,
  open(url) {
    const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS })
    return Promise.resolve({
      install: async () => void (await pool.query(CREATE_PLAIN)),
      enqueue: (number) => pool.query(INSERT_PLAIN, valuesOf(number)),
      fill: notDrained,
      deliver: notDrained,
      close: () => pool.end(),
    })
  },
}

/**
 * The limit of a drain: rows are read in the order of their ids, and no position is kept. It loses events: an id that commits behind a
 * larger one is passed.
 */
export const readsById: ContenderKind = {
  order: 'ids; it passes what commits late',
  settings: `${READ_PLAIN.text}, ${BATCH} at a time, on one connection; the position is in memory. Enqueue: ${INSERT_PLAIN}, alone.`,
  open(url) {
    const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS })
    let position = '0'
    return Promise.resolve({
      install: async () => void (await pool.query(CREATE_PLAIN)),
      enqueue: (number) => pool.query(INSERT_PLAIN, valuesOf(number)),
      fill: (count) =>
        inChunks(count, BATCH, async (numbers) => {
          await pool.query(FILL_PLAIN, ['trades', JSON.stringify(numbers.map((number) => eventOf(number)))])
        }),
      deliver(take) {
        const stopping = new AbortController()
        const running = (async () => {
          while (!stopping.signal.aborted) {
            const { rows } = await pool.query<{ id: string; payload: Payload }>({
              ...READ_PLAIN,
              values: [position, BATCH],
            })
            for (const { payload } of rows) take(payload)
            position = rows.at(-1)?.id ?? position
            if (rows.length === 0) await new Promise((resolve) => setTimeout(resolve, POLL_MS))
          }
        })()
        return Promise.resolve(async () => {
          stopping.abort()
          await running
        })
      },
      close: () => pool.end(),
    })
  },
}

/**
 * The limit from COMMIT to the sink: one message, and PostgreSQL sends the event with it. It keeps no position: what is notified while no consumer
 * listens never comes.
 */
export const notifies: ContenderKind = {
  order: 'that of commits',
  settings: `${INSERT_AND_NOTIFY}, alone, on ${CONNECTIONS} connections; one connection that listens.`,
  open(url) {
    const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS })
    return Promise.resolve({
      install: async () => void (await pool.query(CREATE_PLAIN)),
      enqueue: (number) => pool.query(INSERT_AND_NOTIFY, valuesOf(number)),
      fill: notDrained,
      async deliver(take) {
        const listening = new pg.Client(url)
        await listening.connect()
        listening.on('notification', ({ payload }) => take(JSON.parse(payload ?? '') as Payload))
        await listening.query(LISTEN)
        return () => listening.end()
      },
      close: () => pool.end(),
    })
  },
}

/** Lockstep without its client: the function in SQL, alone. */
export const lockstepInSql: ContenderKind = {
  order: 'strict',
  settings: `${ENQUEUE_IN_SQL}, alone, on ${CONNECTIONS} connections.`,
  enqueueOnly: true,
  open(url) {
    const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS })
    return Promise.resolve({
      install: async () => void (await new Lockstep(pool).migrate()),
      enqueue: (number) => pool.query(ENQUEUE_IN_SQL, valuesOf(number)),
      fill: notDrained,
      deliver: notDrained,
      close: () => pool.end(),
    })
  },
}

/** As many as a transaction of a consumer has at most. */
const EFFECTS_AT_ONCE = 100

/** What handlers that write one event at a time have to pay in any case: no event is read, and no order is kept. */
export const effectsAlone: ContenderKind = {
  order: 'none',
  settings: `The INSERTs of the handlers and nothing else, ${EFFECTS_AT_ONCE} in a transaction, on ${CONCURRENCY} connections of one process.`,
  open(url) {
    const pool = new pg.Pool({ connectionString: url, max: CONCURRENCY })
    let next = 0
    const writeSome = (handled: () => void): Promise<void> => {
      const first = next
      next += EFFECTS_AT_ONCE
      return inTransaction(pool, async (client) => {
        for (let number = first; number < first + EFFECTS_AT_ONCE; number++) {
          const { key, payload } = eventOf(number)
          await client.query(INSERT_EFFECT, [key, number, JSON.stringify(payload)])
          handled()
        }
      })
    }
    return Promise.resolve({
      install: async () => void (await pool.query(CREATE_EFFECTS)),
      enqueue: notDrained,
      // It needs no backlog: it writes until it is stopped.
      fill: (count) => Promise.resolve(count),
      deliver: notDrained,
      consume(handled) {
        const stop = new AbortController()
        const write = async (): Promise<void> => {
          while (!stop.signal.aborted) await writeSome(handled)
        }
        const running = Promise.all(Array.from({ length: CONCURRENCY }, write))
        return Promise.resolve(async () => {
          stop.abort()
          await running
        })
      },
      close: () => pool.end(),
    })
  },
}

function notDrained(): Promise<never> {
  return Promise.reject(new Error('this one is not drained'))
}

/**
 * The query that locks as it reads. It looks as if it kept a key's order, and with two dispatchers it does not: `npm run attack -- order`
 * has it as its control. Here it is alone, and its order is whatever the clock was at the INSERT.
 */
export const lockingQuery: ContenderKind = {
  order: 'clock, broken by a second dispatcher',
  settings: `${TAKE_PENDING}\n${MARK_SENT}\nin one transaction, one dispatcher, ${BATCH} at a time, a partial index for the order.`,
  open(url) {
    const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS })
    return Promise.resolve({
      install: async () => void (await pool.query(CREATE_PENDING)),
      enqueue: (number) => inTransaction(pool, (client) => client.query(INSERT_PENDING, valuesOf(number))),
      fill: (count) =>
        inChunks(count, BATCH, async (numbers) => {
          await pool.query(FILL_PENDING, ['trades', JSON.stringify(numbers.map((number) => eventOf(number)))])
        }),
      deliver(take) {
        const stopping = new AbortController()
        const running = (async () => {
          while (!stopping.signal.aborted) {
            const taken = await inTransaction(pool, async (client) => {
              const { rows } = await client.query<{ id: string; payload: Payload }>(TAKE_PENDING, [BATCH])
              for (const { payload } of rows) take(payload)
              if (rows.length > 0) await client.query(MARK_SENT, [rows.map(({ id }) => id)])
              return rows.length
            })
            if (taken === 0) await new Promise((resolve) => setTimeout(resolve, POLL_MS))
          }
        })()
        return Promise.resolve(async () => {
          stopping.abort()
          await running
        })
      },
      close: () => pool.end(),
    })
  },
}

const POLL_MS = 10

/** As a careful engineer writes it. */
export async function inTransaction<T>(pool: pg.Pool, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect()
  try {
    await client.query(BEGIN)
    const result = await work(client)
    await client.query(COMMIT)
    return result
  } catch (error) {
    await client.query(ROLLBACK)
    throw error
  } finally {
    client.release()
  }
}
