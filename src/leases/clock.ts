/** A moment by this machine's own two clocks. */
export interface ClockReading {
  readonly monotonic: number
  readonly wall: number
}

/** By how much a test has moved the clocks of leases: 0 in every other program. */
let movedMs = 0
const listeners = new Set<() => void>()

/** The monotonic clock of leases. */
export function monotonicMs(): number {
  return performance.now() + movedMs
}

export function readClocks(): ClockReading {
  return { monotonic: monotonicMs(), wall: Date.now() + movedMs }
}

/**
 * How long ago it was, at least: the larger of the two. The monotonic clock stands still while the machine sleeps; the wall clock
 * may be set back.
 */
export function elapsedMs(since: ClockReading): number {
  return Math.max(monotonicMs() - since.monotonic, Date.now() + movedMs - since.wall)
}

/** Moves the clocks of all leases of this process forward, for `pg-lockstep/testing`. Timers that wait for them are set again. */
export function moveClocks(ms: number): void {
  movedMs += ms
  for (const listener of listeners) listener()
}

/** Calls the listener when the clocks were moved. The function that it returns removes the listener. */
export function onClocksMoved(listener: () => void): () => void {
  listeners.add(listener)
  return () => void listeners.delete(listener)
}
