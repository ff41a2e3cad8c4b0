import type { WaitBudget } from '../locks/index.ts'

/** Asking again, where all places for waiting at the server are taken. */
const MIN_PAUSE_MS = 10
const MAX_PAUSE_MS = 150

/** A moment before asking again, or until the wait budget ends. */
export async function pause(round: number, budget: WaitBudget): Promise<void> {
  const delayMs = Math.min(MAX_PAUSE_MS, MIN_PAUSE_MS * 2 ** round) * (0.5 + Math.random() / 2)
  await new Promise<void>((resolve) => {
    const timer = setTimeout(() => {
      forget()
      resolve()
    }, delayMs)
    const forget = budget.onEnd(() => {
      clearTimeout(timer)
      resolve()
    })
  })
}
