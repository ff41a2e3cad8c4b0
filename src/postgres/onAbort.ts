/** All who wait for one signal. */
interface FanOut {
  readonly listeners: Set<() => void>
  readonly stop: () => void
}

const fanOuts = new WeakMap<AbortSignal, FanOut>()

/**
 * Calls back once when the signal is aborted, at once where it was before. The answer takes it back.
 *
 * A signal that is shared by many callers gets one listener for all of them, from the first that comes to the last that leaves: Node
 * warns of a leak from the eleventh on, and each costs microseconds.
 */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  if (signal.aborted) {
    listener()
    return nothing
  }
  const fanOut = fanOuts.get(signal) ?? listen(signal)
  // A function of its own: the same one may be given twice.
  const call = (): void => listener()
  fanOut.listeners.add(call)
  return () => {
    if (fanOut.listeners.delete(call) && fanOut.listeners.size === 0) fanOut.stop()
  }
}

/** Apart from `onAbort`: what the signal keeps alive must not be one caller's. */
function listen(signal: AbortSignal): FanOut {
  const listeners = new Set<() => void>()
  const stop = (): void => {
    fanOuts.delete(signal)
    signal.removeEventListener('abort', notifyAll)
  }
  const notifyAll = (): void => {
    stop()
    const all = [...listeners]
    listeners.clear()
    for (const listener of all) listener()
  }
  signal.addEventListener('abort', notifyAll)
  const fanOut = { listeners, stop }
  fanOuts.set(signal, fanOut)
  return fanOut
}

function nothing(): void {}
