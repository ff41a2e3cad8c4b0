export type AddJob = <T>(job: () => Promise<T>) => Promise<T>

/** One job at a time, for all requests, as in p-queue: the end of a job starts the next one, in the async context of the first. */
export function jobQueue(): AddJob {
  const jobs: (() => Promise<void>)[] = []
  let running = false
  const next = (): void => {
    const job = jobs.shift()
    running = job !== undefined
    void job?.().finally(next)
  }
  return (work) =>
    new Promise((resolve, reject) => {
      jobs.push(() => work().then(resolve, reject))
      if (!running) next()
    })
}
