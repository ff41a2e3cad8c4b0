import { setTimeout as delay } from 'node:timers/promises'
import { key } from 'pg-lockstep'
import type { Desk } from '../desk.ts'
import { localLog, readLocalLog } from './localLog.ts'
import { connectNats, readNats, throughNats } from './throughNats.ts'

const READER_TTL_MS = 5_000
/** After a failure, such as a database that restarts. */
const AGAIN_MS = 500

/** Publishes, in every process, and reads what was published, in one of them, until the signal. */
export async function publishAndRead(desk: Desk, signal: AbortSignal): Promise<void> {
  if (desk.natsUrl === undefined) {
    await Promise.all([
      persistently(desk, 'dispatcher', signal, () => dispatch(desk, localLog(desk), signal)),
      persistently(desk, 'reader', signal, () => inOneProcess(desk, signal, (lost) => readLocalLog(desk, lost))),
    ])
    return
  }
  const client = await connectNats(desk.natsUrl)
  try {
    await Promise.all([
      persistently(desk, 'dispatcher', signal, () => dispatch(desk, throughNats(client), signal)),
      persistently(desk, 'reader', signal, () => inOneProcess(desk, signal, (lost) => readNats(client, desk, lost))),
    ])
  } finally {
    await client.close()
  }
}

function dispatch(desk: Desk, sink: ReturnType<typeof localLog> | ReturnType<typeof throughNats>, signal: AbortSignal) {
  return desk.lockstep.dispatcher({ sink, holder: desk.processName }).run({ signal })
}

/** The order of a portfolio is kept by the inbox; one reader at a time only saves the others from reading in vain. */
async function inOneProcess(
  { lockstep, processName }: Desk,
  signal: AbortSignal,
  read: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  await lockstep.leader(key`Leader:trade-reader`, (lease) => read(AbortSignal.any([signal, lease.signal])), {
    signal,
    holder: processName,
    ttlMs: READER_TTL_MS,
  })
}

/** A reader that has met an error begins anew where it was acknowledged. */
async function persistently(desk: Desk, name: string, signal: AbortSignal, run: () => Promise<void>): Promise<void> {
  while (!signal.aborted) {
    try {
      await run()
    } catch (error) {
      if (signal.aborted) return
      desk.say(`trades: the ${name} begins anew: ${error instanceof Error ? error.message : String(error)}`)
      await delay(AGAIN_MS, undefined, { signal }).catch(() => undefined)
    }
  }
}
