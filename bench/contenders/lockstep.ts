import { Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { CONNECTIONS, eventOf, fill } from '../outboxEvents.ts'
import type { ContenderKind, Payload } from './contender.ts'

/** Lockstep as it comes. Who enqueues and who delivers have pools of their own, as in two processes. */
export const lockstep: ContenderKind = {
  order: 'strict',
  settings: `lockstep.transaction({}, (tx) => tx.enqueue(event)) on ${CONNECTIONS} connections; one dispatcher with its defaults
(8 shards, batches of 1,000) on 4 connections. Nothing is set for the occasion but retainMs: false.`,
  open(url) {
    const writing = new pg.Pool({ connectionString: url, max: CONNECTIONS })
    const reading = new pg.Pool({ connectionString: url, max: 4 })
    const [producer, consumer] = [new Lockstep(writing), new Lockstep(reading)] as unknown as [Lockstep, Lockstep]
    return Promise.resolve({
      install: async () => void (await producer.migrate()),
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
      async close() {
        await Promise.all([producer.close(), consumer.close()])
        await Promise.all([writing.end(), reading.end()])
      },
    })
  },
}
