import { setTimeout as sleep } from 'node:timers/promises'
import type { Client } from '../attacks/lab.ts'
import { GRACE_MS } from './leftovers.ts'

/** Whether as many transactions can be open at the same time as the pool may have connections. */
export async function poolIsWhole({ lockstep }: Client, size: number): Promise<boolean> {
  let open = 0
  let allAreOpen = (): void => undefined
  const whole = new Promise<true>((resolve) => (allAreOpen = () => resolve(true)))
  const timeIsUp = sleep(GRACE_MS, false)
  const transactions = Array.from({ length: size }, () =>
    lockstep.transaction({}, async () => {
      if (++open === size) allAreOpen()
      await Promise.race([whole, timeIsUp])
    }),
  )
  const verdict = await Promise.race([whole, timeIsUp])
  await Promise.all(transactions)
  return verdict
}
