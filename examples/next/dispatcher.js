import { lockstep } from './lockstep.js'

/** Stands for a broker: writes down what it receives, in the order in which it comes. */
async function send(events) {
  await lockstep.transaction({}, async (tx) => {
    for (const { key, seq } of events) {
      await tx.query('INSERT INTO receipts (account, seq) VALUES ($1, $2)', [key, String(seq)])
    }
  })
}

export async function startDispatcher() {
  await lockstep.migrate()
  const stop = new AbortController()
  process.once('SIGTERM', () => stop.abort())
  // Not awaited: it runs as long as the server. One that cannot continue ends the process.
  void lockstep.outbox.dispatcher({ name: 'receipts', sink: send, ttlMs: 2_000 }).run({ signal: stop.signal })
}
