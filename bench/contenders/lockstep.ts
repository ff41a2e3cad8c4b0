import { Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { CONNECTIONS, eventOf, fill } from '../outboxEvents.ts'
import { type Contender, CONCURRENCY, type ContenderKind, type Payload } from './contender.ts'
import { CREATE_EFFECTS, INSERT_EFFECT, INSERT_EFFECTS } from './effects.sql.ts'

/** Lockstep as it comes. Who enqueues and who delivers have pools of their own, as in two processes. */
export const lockstep: ContenderKind = {
  order: 'strict',
  settings: `lockstep.transaction({}, (tx) => tx.enqueue(event)) on ${CONNECTIONS} connections; one dispatcher with its defaults
(8 shards, batches of 1,000) on 4 connections. Nothing is set for the occasion but retainMs: false.`,
  open: (url) => open(url, false),
}

/** Its consumer takes the waiting events of a key as a list. */
export const lockstepLists: ContenderKind = {
  order: 'strict',
  settings: 'lockstep.consumer() with lists: true; one INSERT for each list.',
  open: (url) => open(url, true),
}

function open(url: string, lists: boolean): Promise<Contender> {
  const writing = new pg.Pool({ connectionString: url, max: CONNECTIONS })
  const reading = new pg.Pool({ connectionString: url, max: 4 })
  const ofHandlers = new pg.Pool({ connectionString: url, max: CONCURRENCY + 4 })
  const [producer, consumer, handling] = [writing, reading, ofHandlers].map(
    (pool) => new Lockstep(pool),
  ) as unknown as [Lockstep, Lockstep, Lockstep]
  return Promise.resolve({
    async install() {
      await producer.migrate()
      await writing.query(CREATE_EFFECTS)
    },
    enqueue: (number) => producer.transaction({}, (tx) => tx.enqueue(eventOf(number))),
    fill: (count) => fill(producer, count),
    deliver(take) {
      const stop = new AbortController()
      const dispatcher = consumer.outbox.dispatcher({
        retainMs: false,
        sink(events) {
          for (const event of events) take(event.payload as Payload)
        },
      })
      const running = dispatcher.run({ signal: stop.signal })
      return Promise.resolve(async () => {
        stop.abort()
        await running
      })
    },
    consume(handled) {
      const options = { topics: ['trades'], concurrency: CONCURRENCY, retainMs: false as const }
      const running = lists
        ? handling.consumer('consumed', { ...options, lists }, async (events, tx) => {
            const payloads = events.map(({ payload }) => JSON.stringify(payload))
            await tx.query(INSERT_EFFECTS, [events.map(({ key }) => key), events.map(({ seq }) => seq), payloads])
            for (const _ of events) handled()
          })
        : handling.consumer('consumed', options, async ({ key, seq, payload }, tx) => {
            await tx.query(INSERT_EFFECT, [key, seq, JSON.stringify(payload)])
            handled()
          })
      const ended = running.run()
      return Promise.resolve(async () => {
        await running.stop()
        await ended
      })
    },
    async close() {
      await Promise.all([producer.close(), consumer.close(), handling.close()])
      await Promise.all([writing.end(), reading.end(), ofHandlers.end()])
    },
  })
}
