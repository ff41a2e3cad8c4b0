import { meansNoConnection } from './connectFailure.ts'
import { SilenceWatch } from './silenceWatch.ts'

/** How long a first question may take, and how much longer each one after it. */
const FIRST_MS = 2000
const GROWTH = 3

/**
 * Asks a question whose answer is required. A dead connection is found out soon, and the next one tried; a server that is only slow
 * gets more time with each question, in the end all of it.
 */
export async function withGrowingTimeout<T>(
  silence: SilenceWatch,
  ask: (silence: SilenceWatch) => Promise<T>,
): Promise<T> {
  for (let silenceMs = FIRST_MS; silenceMs < silence.silenceMs; silenceMs *= GROWTH) {
    const askedAt = performance.now()
    try {
      return await ask(new SilenceWatch(silenceMs))
    } catch (error) {
      // What failed before its time was over would fail in the same way again.
      if (!meansNoConnection(error) || performance.now() - askedAt < silenceMs) throw error
    }
  }
  return ask(silence)
}
