import { setTimeout as sleep } from 'node:timers/promises'

const LOOK_EVERY_MS = 10

/** Waits for a state, and says whether it came in time; what follows from it if not is for the caller to say. */
export async function until(holds: () => boolean | Promise<boolean>, withinMs = Infinity): Promise<boolean> {
  const deadline = performance.now() + withinMs
  while (!(await holds())) {
    if (performance.now() > deadline) return false
    await sleep(LOOK_EVERY_MS)
  }
  return true
}
