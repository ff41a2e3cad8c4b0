/** Who wants to end by itself at an interrupt: a watch that people end with Ctrl-C has done all it should. */
let listener: (() => void) | undefined

/** Lets an interrupt end the work gently instead of the program at once; for as long as the work takes. */
export async function untilInterrupted<T>(work: (stop: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController()
  listener = () => controller.abort()
  try {
    return await work(controller.signal)
  } finally {
    listener = undefined
  }
}

/** True if a listener was called, which ends by itself. */
export function interruptGently(): boolean {
  if (listener === undefined) return false
  listener()
  // A second interrupt does not wait any more.
  listener = undefined
  return true
}
