import type { Lockstep } from 'pg-lockstep'

/** Of what is drained, so much comes before the clock starts. */
const WARM_UP_SHARE = 0.1
let names = 0

/** How long draining took, from the moment in which it was in progress. */
export interface Drained {
  readonly events: number
  readonly ms: number
}

/**
 * Drains the first events of a backlog into a sink that does nothing, as a dispatcher of a new name: it begins with the oldest one.
 * The clock starts a little later: taking shards costs the same for one event as for a million, and would count for much where little is
 * drained.
 */
export async function drain(
  lockstep: { readonly outbox: Pick<Lockstep['outbox'], 'dispatcher'> },
  upTo: number,
  name = `drain-${++names}`,
  topics?: readonly string[],
): Promise<Drained> {
  const stop = new AbortController()
  let [events, from, startedAt, endedAt] = [0, 0, 0, 0]
  const dispatcher = lockstep.outbox.dispatcher({
    name,
    retainMs: false,
    ...(topics === undefined ? {} : { topics }),
    sink(batch) {
      if (endedAt > 0) return
      events += batch.length
      if (startedAt === 0 && events >= upTo * WARM_UP_SHARE) [from, startedAt] = [events, performance.now()]
      if (events < upTo) return
      endedAt = performance.now()
      stop.abort()
    },
  })
  await dispatcher.run({ signal: stop.signal })
  return { events: events - from, ms: endedAt - startedAt }
}

/** How long a new dispatcher takes to pass so many events of other topics, from its start to the one event that it wants behind them. */
export async function pass(lockstep: Lockstep, events: number): Promise<Drained> {
  const [topic, stop] = [`wanted-${++names}`, new AbortController()]
  await lockstep.transaction({}, (tx) => tx.enqueue({ topic, key: 'last', payload: {} }))
  const dispatcher = lockstep.outbox.dispatcher({
    name: topic,
    topics: [topic],
    retainMs: false,
    sink: () => stop.abort(),
  })
  const startedAt = performance.now()
  let endedAt = 0
  stop.signal.addEventListener('abort', () => (endedAt = performance.now()))
  await dispatcher.run({ signal: stop.signal })
  return { events, ms: endedAt - startedAt }
}
