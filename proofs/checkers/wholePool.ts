import type { Client } from '../attacks/lab.ts'
import { GRACE_MS } from './leftovers.ts'
import { openAtOnce } from './openAtOnce.ts'

/** Whether as many transactions can be open at the same time as the pool may have connections. */
export async function poolIsWhole({ lockstep }: Client, size: number): Promise<boolean> {
  return (await openAtOnce(size, GRACE_MS, (held) => lockstep.transaction({}, held))) === size
}
