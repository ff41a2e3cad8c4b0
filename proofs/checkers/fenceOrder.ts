import type { Checker, Entry, Violation } from '../history.ts'
import { operationsOf } from './operations.ts'
import { nameOf } from './wording.ts'

/** What the receiver has of one key. */
interface Received {
  /** The write with the highest fence, and that fence. */
  highest: { readonly entry: Entry; readonly fence: bigint } | undefined
  /** The first write without a fence of the writer that began last. */
  last: Entry | undefined
  /** Who wrote without a fence before that one. */
  readonly before: Set<string>
  /** The writers whose late writes were reported. */
  readonly told: Set<string>
}

/**
 * A holder's write does not reach the world after one of the next holder. Fences say who is next; without them, the one that has written
 * between two writes of another one is.
 */
export const fenceOrder: Checker = {
  name: 'no stale write',
  promise: 'What a holder does outside does not arrive after something that the next holder did.',
  check(history) {
    const operations = operationsOf(history)
    const keys = new Map<string, Received>()
    const violations: Violation[] = []
    for (const entry of history.entries) {
      if (entry.what !== 'took') continue
      const { key, op, at } = entry
      let received = keys.get(key)
      if (received === undefined) {
        received = { highest: undefined, last: undefined, before: new Set(), told: new Set() }
        keys.set(key, received)
      }
      const newer = entry.fence === undefined ? cameBetween(received, entry) : hadHigherFence(received, entry)
      if (newer === undefined || received.told.has(op)) continue
      received.told.add(op)
      const [late, next] = [nameOf(operations, op), nameOf(operations, newer.op)]
      const text =
        entry.fence === undefined
          ? `${late} wrote to ${key} again after ${next} had: both took it for theirs`
          : `${late} wrote to ${key} with fence ${entry.fence} after ${next} had with fence ${newer.fence}: its time was over`
      const ops = [...new Set([newer.op, op])].filter((id) => id !== '')
      violations.push({ invariant: this.name, scenario: history.scenario, key, text, ops, at })
    }
    return violations
  },
}

function hadHigherFence(received: Received, entry: Entry): Entry | undefined {
  const fence = BigInt(entry.fence ?? 0)
  const { highest } = received
  // One fence of two holders is as bad: the receiver cannot tell who is late.
  if (highest !== undefined && (fence < highest.fence || (fence === highest.fence && entry.op !== highest.entry.op))) {
    return highest.entry
  }
  received.highest = { entry, fence }
  return undefined
}

function cameBetween(received: Received, entry: Entry): Entry | undefined {
  const { last, before } = received
  if (entry.op === '' || last?.op === entry.op) return undefined
  // A former holder that returns is not the holder again: the one after it still is.
  if (before.has(entry.op)) return last
  if (last !== undefined) before.add(last.op)
  received.last = entry
  return undefined
}
