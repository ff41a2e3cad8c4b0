/**
 * From pg-boss, used to publish events: the first event fails once, and the second one of the same key overtakes it.
 */

/** What the old code uses of pg-boss. */
export interface Boss {
  createQueue(name: string): Promise<void>
  send(name: string, data: object, options: { retryDelay: number }): Promise<string | null>
  fetch(name: string): Promise<{ id: string; data: { number: number } }[]>
  complete(name: string, id: string): Promise<unknown>
  fail(name: string, id: string): Promise<unknown>
}

/** The numbers of the events, in the order in which they were delivered. */
export async function before(boss: Boss): Promise<number[]> {
  await boss.createQueue('trades')
  for (const number of [1, 2]) await boss.send('trades', { portfolio: 'growth', number }, { retryDelay: 1 })

  const delivered: number[] = []
  let broken = true
  while (delivered.length < 2) {
    const [job] = await boss.fetch('trades')
    if (job === undefined) continue // it is not yet due again
    if (broken) {
      broken = false
      await boss.fail('trades', job.id)
    } else {
      delivered.push(job.data.number)
      await boss.complete('trades', job.id)
    }
  }
  return delivered
}
