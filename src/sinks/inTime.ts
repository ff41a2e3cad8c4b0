/** A broker that has not answered in time. */
export class NoAnswerInTime extends Error {
  override readonly name = 'NoAnswerInTime'
}

/** An answer, or `NoAnswerInTime`. What comes later than that is heard by nobody. */
export async function inTime<T>(asked: Promise<T>, waitMs: number, what = 'no answer'): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new NoAnswerInTime(`${what} within ${Math.round(waitMs)} ms`)), Math.max(0, waitMs))
  })
  try {
    return await Promise.race([asked, silence])
  } finally {
    clearTimeout(timer)
  }
}
