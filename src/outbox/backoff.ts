/** Twice as long each time, up to the longest; with chance in it, so that many do not come back at once. */
export function backoffMs(attempt: number, firstMs: number, longestMs: number): number {
  return Math.min(longestMs, firstMs * 2 ** Math.min(attempt, 30)) * (0.75 + Math.random() / 4)
}
