import { setTimeout as delay } from 'node:timers/promises'
import { type DispatcherOptions, key } from 'pg-lockstep'
import type { Desk } from '../desk.ts'
import { localLog, readLocalLog } from './localLog.ts'
import { connectNats, readNats, throughNats } from './throughNats.ts'

const READER_TTL_MS = 5_000
/** After a failure, such as a database that restarts. */
const FIRST_PAUSE_MS = 250
const LONGEST_PAUSE_MS = 10_000

/** Publishes, in every process, and reads what was published, in one of them, until the signal. */
export async function publishAndRead(desk: Desk, signal: AbortSignal): Promise<void> {
  const { natsUrl } = desk
  if (natsUrl === undefined) return both(desk, 'local', signal, localLog(desk), (lost) => readLocalLog(desk, lost))
  await persistently(desk, 'connection to NATS', signal, async () => {
    const client = await connectNats(natsUrl)
    try {
      await both(desk, 'nats', signal, throughNats(client), (lost) => readNats(client, desk, lost))
    } finally {
      await client.close()
    }
  })
}

/** Each kind of sink has a dispatcher of its own name: whoever changes it gets everything that is kept, and the inbox knows what it had. */
async function both(
  desk: Desk,
  name: string,
  signal: AbortSignal,
  sink: DispatcherOptions['sink'],
  read: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const { lockstep, processName } = desk
  const dispatcher = lockstep.outbox.dispatcher({ name, sink, holder: processName })
  await Promise.all([
    persistently(desk, 'dispatcher', signal, () => dispatcher.run({ signal })),
    persistently(desk, 'reader', signal, () => inOneProcess(desk, signal, read)),
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

/** One that has met an error begins anew: a reader where it was acknowledged, a dispatcher where its cursor is. */
async function persistently(desk: Desk, name: string, signal: AbortSignal, run: () => Promise<void>): Promise<void> {
  for (let pauseMs = FIRST_PAUSE_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    const begun = performance.now()
    try {
      await run()
    } catch (error) {
      if (signal.aborted) return
      if (performance.now() - begun > LONGEST_PAUSE_MS) pauseMs = FIRST_PAUSE_MS
      desk.say(
        `trades: the ${name} begins anew in ${pauseMs} ms: ${error instanceof Error ? error.message : String(error)}`,
      )
      await delay(pauseMs, undefined, { signal }).catch(() => undefined)
    }
  }
}
