import { setTimeout as delay } from 'node:timers/promises'
import { key } from 'pg-lockstep'
import type { Desk } from '../desk.ts'
import { type Broker, BROKERS } from './brokers/index.ts'

const READER_TTL_MS = 5_000
/** After a failure, such as a database that restarts. */
const FIRST_PAUSE_MS = 250
const LONGEST_PAUSE_MS = 10_000

/** Publishes, in every process, and reads what was published, in one of them, until the signal. */
export async function publishAndRead(desk: Desk, signal: AbortSignal): Promise<void> {
  const { name, url } = desk.sink ?? { name: 'local', url: '' }
  await persistently(desk, `connection to ${name}`, signal, async () => {
    const broker = await BROKERS[name](desk, url)
    try {
      await both(desk, name, signal, broker)
    } finally {
      await broker.close()
    }
  })
}

/** Each kind of sink has a dispatcher of its own name: another kind receives everything that is kept, and the inbox knows what was booked. */
async function both(desk: Desk, name: string, signal: AbortSignal, broker: Broker): Promise<void> {
  const { lockstep, processName } = desk
  const dispatcher = lockstep.outbox.dispatcher({ name, sink: broker.sink, holder: processName })
  await Promise.all([
    persistently(desk, 'dispatcher', signal, () => dispatcher.run({ signal })),
    persistently(desk, 'reader', signal, () => inOneProcess(desk, signal, (lost) => broker.read(lost))),
  ])
}

/** The order of a portfolio is kept by the inbox; one reader at a time only saves the others from reading in vain. */
async function inOneProcess(
  { lockstep, processName }: Desk,
  signal: AbortSignal,
  read: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  await lockstep.leader(
    key`Leader:trade-reader`,
    {
      signal,
      holder: processName,
      ttlMs: READER_TTL_MS,
    },
    (lease) => read(AbortSignal.any([signal, lease.signal])),
  )
}

/** One that failed begins again: a reader where it was acknowledged, a dispatcher where its cursor is. */
async function persistently(desk: Desk, name: string, signal: AbortSignal, run: () => Promise<void>): Promise<void> {
  for (let pauseMs = FIRST_PAUSE_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    const begun = performance.now()
    try {
      await run()
    } catch (error) {
      if (signal.aborted) return
      if (performance.now() - begun > LONGEST_PAUSE_MS) pauseMs = FIRST_PAUSE_MS
      desk.say(
        `trades: the ${name} begins again in ${pauseMs} ms: ${error instanceof Error ? error.message : String(error)}`,
      )
      await delay(pauseMs, undefined, { signal }).catch(() => undefined)
    }
  }
}
