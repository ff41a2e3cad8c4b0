/** A broker that has not answered in time. */
export class AnswerTimeoutError extends Error {
  override readonly name = 'AnswerTimeoutError'
}

/** An answer, or `AnswerTimeoutError`. What comes later than that is ignored. */
export async function withTimeout<T>(asked: Promise<T>, waitMs: number, what = 'no answer'): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new AnswerTimeoutError(`${what} within ${Math.round(waitMs)} ms`)),
      Math.max(0, waitMs),
    )
  })
  try {
    return await Promise.race([asked, silence])
  } finally {
    clearTimeout(timer)
  }
}
