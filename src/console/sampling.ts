/** So far back charts go. */
export const KEPT_MS = 60 * 60 * 1000
/** One sample of so many milliseconds is kept: 360 of an hour. */
export const SAMPLE_MS = 10_000
