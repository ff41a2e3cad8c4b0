import { setTimeout as delay } from 'node:timers/promises'
import type { Outcome } from './command.ts'
import type { Terminal } from './terminal.ts'

const REFRESH_MS = 1000

/** Looks again every second and shows what it saw, under the time, until it is stopped. */
export async function refreshEverySecond(
  look: () => Promise<Outcome>,
  show: (outcome: Outcome) => void,
  stop: AbortSignal,
): Promise<void> {
  while (!stop.aborted) {
    const outcome = await look()
    const at = new Date()
    const head = ({ paint }: Terminal): string => paint('dim', `${at.toISOString()}  Ctrl-C ends`)
    show({ ...outcome, text: (terminal) => `${head(terminal)}\n\n${outcome.text(terminal)}` })
    await delay(REFRESH_MS, undefined, { signal: stop }).catch(() => undefined)
  }
}
