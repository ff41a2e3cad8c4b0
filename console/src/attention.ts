import type { OverviewSnapshot, Tab } from 'pg-lockstep/console'
import { count, duration, number } from './wording.ts'

/** Something an operator should look at, and where. */
export interface Concern {
  readonly tab: Tab
  readonly urgent: boolean
  readonly text: string
  /** What to do about it. */
  readonly todo: string
  /** Where the row is, on its tab. */
  readonly at: string
}

const LONG_WAIT_MS = 1_000
const VERY_LONG_WAIT_MS = 10_000
const LAG_MS = 5_000
const LONG_LAG_MS = 60_000
const CROWDED = 0.8

/** What needs attention, the urgent first. */
export function concerns(now: OverviewSnapshot): Concern[] {
  const found: Concern[] = []
  if (now.shardsWithoutOwner > 0) {
    const verb = now.shardsWithoutOwner === 1 ? 'has' : 'have'
    found.push({
      tab: 'outbox',
      urgent: true,
      text: `${count(now.shardsWithoutOwner, 'shard')} ${verb} no owner: no process delivers what is in ${now.shardsWithoutOwner === 1 ? 'it' : 'them'}.`,
      todo: 'Start a process that runs this dispatcher; remove a dispatcher that is no longer used.',
      at: 'shards.sort=owner',
    })
  }
  if (now.parkedStreams > 0) {
    const verb = now.parkedStreams === 1 ? 'is' : 'are'
    found.push({
      tab: 'outbox',
      urgent: false,
      text: `${count(now.parkedStreams, 'stream')} ${verb} parked, blocked or paused.`,
      todo: 'Read the reason; repair the consumer and retry, or skip the event.',
      at: 'parked.sort=-since',
    })
  }
  if (now.lockWaiters > 0 && now.longestLockWaitMs >= LONG_WAIT_MS) {
    const who = now.lockWaiters === 1 ? '1 session waits' : `${number(now.lockWaiters)} sessions wait`
    found.push({
      tab: 'locks',
      urgent: now.longestLockWaitMs >= VERY_LONG_WAIT_MS,
      text: `${who} for a lock, the longest for ${duration(now.longestLockWaitMs)}.`,
      todo: 'See who holds the key, and end that session if it hangs.',
      at: 'locks.sort=-wait',
    })
  }
  if (now.outboxLagEvents > 0 && now.outboxLagMs >= LAG_MS) {
    found.push({
      tab: 'outbox',
      urgent: now.outboxLagMs >= LONG_LAG_MS,
      text: `The outbox is ${duration(now.outboxLagMs)} behind: ${count(now.outboxLagEvents, 'event')} to deliver.`,
      todo: 'Start more processes of the dispatcher, or find out why its sink is slow.',
      at: 'shards.sort=-oldest',
    })
  }
  if (now.maxConnections > 0 && now.connections >= CROWDED * now.maxConnections) {
    found.push({
      tab: 'overview',
      urgent: true,
      text: `${number(now.connections)} of ${number(now.maxConnections)} connections of the server are in use.`,
      todo: 'Lower the sizes of pools, or put a pooler in front.',
      at: '',
    })
  }
  return found.toSorted((a, b) => Number(b.urgent) - Number(a.urgent))
}
