import pg from 'pg'
import { CONNECTIONS, eventOf, inChunks, valuesOf } from '../outboxEvents.ts'
import { inTransaction } from './byHand.ts'
import type { ContenderKind, Payload } from './contender.ts'
import {
  CREATE_QUEUE,
  FILL_EVENTS,
  FINISH_BATCH,
  FORCE_TICK,
  GET_EVENTS,
  INSERT_EVENT,
  NEXT_BATCH,
  TICK,
} from './pgq.sql.ts'

/** Events between two ticks of a backlog. */
const TICK_EVERY = 5000
const CHUNK = 1000
/** How often the ticker looks while events come. Its own default is a second. */
const TICK_MS = 50

/** Batches by snapshots, written in C: the ceiling. A consumer that cannot take one event has no way to continue with the other keys. */
export const pgq: ContenderKind = {
  order: 'none promised within a key',
  settings: `pgq.insert_event() in the transaction. One consumer: next_batch, get_batch_events, finish_batch. A backlog is cut into batches of
${TICK_EVERY} (ten times its default); while events come, the ticker runs every ${TICK_MS} ms (its own default is a second).`,
  open(url) {
    const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS })
    const reading = new pg.Pool({ connectionString: url, max: 1 })
    const ticking = new pg.Pool({ connectionString: url, max: 1 })
    const tick = async (): Promise<void> => {
      await ticking.query(FORCE_TICK)
      await ticking.query(TICK)
    }
    return Promise.resolve({
      async install() {
        await pool.query(CREATE_QUEUE)
        await tick()
      },
      enqueue: (number) => inTransaction(pool, (client) => client.query(INSERT_EVENT, valuesOf(number))),
      async fill(count) {
        let since = 0
        const filled = await inChunks(count, CHUNK, async (numbers) => {
          await pool.query(FILL_EVENTS, [JSON.stringify(numbers.map((number) => eventOf(number)))])
          since += numbers.length
          if (since < TICK_EVERY) return
          since = 0
          await tick()
        })
        await tick()
        return filled
      },
      deliver(take) {
        const stopping = new AbortController()
        const every = setInterval(() => void tick().catch(() => undefined), TICK_MS)
        const running = (async () => {
          while (!stopping.signal.aborted) {
            const { rows: next } = await reading.query<{ batch: string | null }>(NEXT_BATCH)
            const batch = next[0]?.batch ?? null
            if (batch === null) {
              await new Promise((resolve) => setTimeout(resolve, 5))
              continue
            }
            const { rows } = await reading.query<{ ev_data: string }>(GET_EVENTS, [batch])
            for (const { ev_data } of rows) take(JSON.parse(ev_data) as Payload)
            await reading.query(FINISH_BATCH, [batch])
          }
        })()
        return Promise.resolve(async () => {
          stopping.abort()
          clearInterval(every)
          await running
        })
      },
      close: async () => void (await Promise.all([pool.end(), reading.end(), ticking.end()])),
    })
  },
}
