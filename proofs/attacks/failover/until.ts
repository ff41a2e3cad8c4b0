import { setTimeout as sleep } from 'node:timers/promises'

/** Comes back when it holds; fails after a while. */
export async function until(holds: () => boolean | Promise<boolean>, what = 'it', withinMs = 120_000): Promise<void> {
  for (const end = performance.now() + withinMs; performance.now() < end; await sleep(10)) if (await holds()) return
  throw new Error(`${what} did not come about within ${withinMs / 1000} s`)
}
