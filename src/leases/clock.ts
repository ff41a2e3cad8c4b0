/** A moment by this machine's own two clocks. */
export interface ClockReading {
  readonly monotonic: number
  readonly wall: number
}

export function readClocks(): ClockReading {
  return { monotonic: performance.now(), wall: Date.now() }
}

/**
 * How long ago it was, at least: the larger of the two. The monotonic clock stands still while the machine sleeps; the wall clock
 * may be set back.
 */
export function elapsedMs(since: ClockReading): number {
  return Math.max(performance.now() - since.monotonic, Date.now() - since.wall)
}
