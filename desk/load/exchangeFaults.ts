import type { Faults } from '../exchange/index.ts'
import { sendOnce } from './sendOnce.ts'

/** Has the exchange misbehave, or behave again. Gives how many requests it has failed so far. */
export async function setFaults(exchangeUrl: string, faults: Partial<Faults>): Promise<number> {
  const answer = await sendOnce({ method: 'POST', url: `${exchangeUrl}/faults`, body: faults, timeoutMs: 10_000 })
  if (!('body' in answer) || answer.status !== 200) throw new Error('The exchange does not take its faults.')
  const { lost = 0, failing = 0, slow = 0 } = answer.body['struck'] as Record<string, number>
  return lost + failing + slow
}
