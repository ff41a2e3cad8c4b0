import type { Patience } from '../locks/index.ts'

/** Asking again, where all places for waiting at the server are taken. */
const MIN_ASK_AGAIN_MS = 10
const MAX_ASK_AGAIN_MS = 150

/** A moment before asking again, or until the patience ends. */
export async function pause(round: number, patience: Patience): Promise<void> {
  const delayMs = Math.min(MAX_ASK_AGAIN_MS, MIN_ASK_AGAIN_MS * 2 ** round) * (0.5 + Math.random() / 2)
  await new Promise<void>((resolve) => {
    const timer = setTimeout(() => {
      forget()
      resolve()
    }, delayMs)
    const forget = patience.onEnd(() => {
      clearTimeout(timer)
      resolve()
    })
  })
}
