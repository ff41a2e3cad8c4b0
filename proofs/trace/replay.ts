import { type Batch, type CommittedEvent, type Cursor, shows, type Snapshot, type Trace } from './trace.ts'

/** A step that the model does not allow. */
export interface Rejection {
  /** The invariant, as ARCHITECTURE has it. */
  readonly invariant: 'O1' | 'O2' | 'O3' | 'O4' | 'O5' | 'O6' | 'O8'
  readonly text: string
}

const BEGIN: Snapshot = { end: 1, inProgress: [] }

/**
 * Replays a trace by the rules of `proofs/model/outbox.pml`: which cursor can follow which, what has to be sent before it moves, who moves it.
 *
 * The database does not say when each commit, read and send happened, and clocks of two processes do not order them. So nothing here
 * depends on the time. Cursors of a shard are ordered by their versions, calls of the sink by when they came, and what a snapshot shows
 * says which commits were before it. A dispatcher moves the cursor of a shard after each batch and before the next one. So the batches of
 * one owner and the moves of that owner belong together one by one.
 */
export function replay(trace: Trace): Rejection[] {
  const rejections: Rejection[] = []
  const reject = (invariant: Rejection['invariant'], text: string): void => void rejections.push({ invariant, text })
  const byId = new Map(trace.events.map((event) => [event.id, event]))
  checkNumbers(trace, reject)
  checkTicks(trace, reject)
  checkDeliveries(trace, byId, reject)
  for (const shard of new Set([...trace.cursors, ...trace.batches].map((each) => each.shard))) {
    new ShardReplay(shard, trace, byId, reject).replay()
  }
  if (trace.complete) {
    const taken = new Set(
      trace.batches.flatMap(({ events, taken: all }) => events.filter((_, i) => all[i]).map(({ id }) => id)),
    )
    for (const event of trace.events)
      if (!taken.has(event.id)) reject('O8', `${nameOf(event)} was committed and never sent`)
  }
  return rejections
}

type Reject = (invariant: Rejection['invariant'], text: string) => void
const nameOf = ({ stream, seq }: Pick<CommittedEvent, 'stream' | 'seq'>): string => `#${seq} of ${stream}`

/** Numbers of a stream have no gaps, no event has the number of another, and positions grow with them. */
function checkNumbers({ events, clashes }: Trace, reject: Reject): void {
  for (const clash of clashes) reject('O1', `two writers took one number: ${clash}`)
  const streams = new Map<string, CommittedEvent[]>()
  for (const event of events) streams.set(event.stream, [...(streams.get(event.stream) ?? []), event])
  for (const list of streams.values()) {
    const sorted = list.toSorted((one, other) => one.seq - other.seq || one.position - other.position)
    sorted.forEach((event, index) => {
      const before = sorted[index - 1]
      if (event.seq !== (before?.seq ?? 0) + 1) reject('O1', `${nameOf(event)} follows #${before?.seq ?? 0}`)
      else if (before !== undefined && before.position >= event.position)
        reject('O1', `${nameOf(event)} has a smaller position than the one before it`)
    })
  }
}

/** The writer of a tick is still in progress in it. */
function checkTicks({ ticks }: Trace, reject: Reject): void {
  for (const { xid, snapshot } of ticks) {
    if (shows(snapshot, xid)) reject('O2', `a tick of transaction ${xid} takes that transaction for one that has ended`)
  }
}

/** In the order of first deliveries no number comes before the one before it, and what is sent is in the database. */
function checkDeliveries({ batches }: Trace, byId: ReadonlyMap<string, CommittedEvent>, reject: Reject): void {
  const got = new Map<string, number>()
  for (const { events, taken } of batches) {
    const stopped = new Set<string>()
    events.forEach((event, index) => {
      if (taken[index] !== true) {
        stopped.add(event.stream)
        return
      }
      if (!byId.has(event.id)) reject('O3', `${nameOf(event)} was sent and is not in the database (${event.id})`)
      if (stopped.has(event.stream)) reject('O6', `${nameOf(event)} was sent behind one that was not accepted`)
      const last = got.get(event.stream) ?? 0
      if (event.seq > last + 1) reject('O6', `${nameOf(event)} was sent before #${last + 1}`)
      got.set(event.stream, Math.max(last, event.seq))
    })
  }
}

/** One shard: its cursors, one after the other, with what its owners have sent. */
class ShardReplay {
  readonly #name: string
  readonly #cursors: readonly Cursor[]
  /** Of each owner what it has sent, and no cursor has moved past yet. */
  readonly #batches = new Map<string, Batch[]>()
  readonly #besides: readonly Batch[]
  readonly #byId: ReadonlyMap<string, CommittedEvent>
  readonly #reject: Reject
  readonly #crashed: boolean
  readonly #waiting: ReadonlySet<number>
  readonly #taken: ReadonlySet<string>
  readonly #refused: ReadonlySet<string>
  /** Not delivered, by transaction. */
  #ahead: CommittedEvent[]
  /** By which version an event was delivered. */
  readonly #passedAt = new Map<string, number>()
  readonly #aside = new Set<number>()

  constructor(shard: number, trace: Trace, byId: ReadonlyMap<string, CommittedEvent>, reject: Reject) {
    this.#name = `shard ${shard}`
    this.#reject = reject
    this.#byId = byId
    this.#crashed = trace.crashed
    this.#waiting = new Set(trace.waiting)
    this.#cursors = trace.cursors
      .filter((cursor) => cursor.shard === shard)
      .toSorted((one, other) => one.version - other.version)
    this.#ahead = trace.events.filter((event) => event.shard === shard).toSorted((one, other) => one.xid - other.xid)
    const batches = trace.batches.filter((batch) => batch.shard === shard)
    const answered = (accepted: boolean): Set<string> =>
      new Set(
        batches.flatMap(({ events, taken }) => events.filter((_, i) => taken[i] === accepted).map(({ id }) => id)),
      )
    this.#taken = answered(true)
    this.#refused = answered(false)
    this.#besides = batches.filter(({ beside }) => beside)
    for (const batch of batches.filter(({ beside, taken }) => !beside && taken.includes(true))) {
      this.#batches.set(batch.fence, [...(this.#batches.get(batch.fence) ?? []), batch])
    }
  }

  replay(): void {
    const lastOf = new Map<string, number>()
    let now: Cursor | undefined
    for (const next of this.#cursors) {
      const before = now ?? {
        ...next,
        version: next.version - 1,
        fence: '0',
        prev: BEGIN,
        next: BEGIN,
        after: 0,
        done: true,
      }
      this.#step(before, next)
      lastOf.set(next.fence, next.version)
      now = next
    }
    this.#checkRest(lastOf)
    this.#checkAside()
  }

  #step(now: Cursor, next: Cursor): void {
    const at = `cursor ${next.version} of ${this.#name}`
    if (next.version !== now.version + 1) this.#reject('O4', `${at} follows cursor ${now.version}`)
    if (BigInt(next.fence) < BigInt(now.fence))
      this.#reject('O4', `${at} was moved with fence ${next.fence}, after fence ${now.fence} had taken the shard`)
    if (!covers(next, now)) this.#reject('O2', `${at} does not show everything that the one before it shows`)
    const passed = this.#pass(next)
    if (next.fence !== now.fence) {
      if (passed.length > 0 && next.version > 1)
        this.#reject('O4', `${at} takes the shard, and moves past ${nameOf(passed[0] as CommittedEvent)}`)
      return
    }
    this.#checkMove(at, next, passed)
  }

  /** What the cursor counts as delivered, and the one before it does not. */
  #pass({ version, prev, next, after, done }: Cursor): CommittedEvent[] {
    const passed: CommittedEvent[] = []
    const ahead: CommittedEvent[] = []
    // Of a long run most events are beyond the end of the window.
    const beyond = this.#ahead.findIndex(({ xid }) => xid >= next.end)
    const shown = beyond === -1 ? this.#ahead.length : beyond
    for (const event of this.#ahead.slice(0, shown)) {
      const isPassed = shows(prev, event.xid) || (shows(next, event.xid) && (done || event.position <= after))
      ;(isPassed ? passed : ahead).push(event)
    }
    this.#ahead = [...ahead, ...this.#ahead.slice(shown)]
    for (const { id } of passed) this.#passedAt.set(id, version)
    return passed
  }

  /** An owner moves the cursor past what its last batches had, and what it parks: no more and no less. */
  #checkMove(at: string, { fence, aside }: Cursor, passed: readonly CommittedEvent[]): void {
    const putAside = new Set(aside)
    for (const position of aside) this.#aside.add(position)
    const toSend = new Set(passed.filter(({ position }) => !putAside.has(position)).map(({ id }) => id))
    const queue = this.#batches.get(fence) ?? []
    const confirmed = new Set<string>()
    while (queue.length > 0 && [...toSend].some((id) => !confirmed.has(id)))
      for (const id of acceptedOf(queue.shift() as Batch)) confirmed.add(id)
    for (const event of passed) {
      if (putAside.has(event.position)) {
        if (confirmed.has(event.id)) this.#reject('O5', `${at} puts ${nameOf(event)} aside, which was accepted`)
      } else if (!confirmed.has(event.id)) {
        const invariant = this.#refused.has(event.id) ? 'O5' : 'O2'
        this.#reject(invariant, `${at} moves past ${nameOf(event)}, which its owner has not sent and not parked`)
      }
    }
    for (const id of confirmed) {
      const event = this.#byId.get(id)
      if (event === undefined || toSend.has(id) || putAside.has(event.position)) continue
      this.#reject('O2', `${at} belongs to a batch with ${nameOf(event)}, which is not in its window`)
    }
  }

  /** What an owner has sent, and no cursor of it has moved past: its lease was lost, or it has ended. */
  #checkRest(lastOf: ReadonlyMap<string, number>): void {
    for (const [fence, queue] of this.#batches) {
      const last = lastOf.get(fence)
      if (last === undefined && !this.#crashed)
        this.#reject('O4', `fence ${fence} has sent events of ${this.#name}, which it has never taken`)
      for (const id of queue.flatMap((batch) => acceptedOf(batch))) {
        const event = this.#byId.get(id)
        const at = this.#passedAt.get(id)
        if (event !== undefined && last !== undefined && at !== undefined && at <= last)
          this.#reject(
            'O2',
            `fence ${fence} sent ${nameOf(event)} again, which cursor ${at} of ${this.#name} had passed`,
          )
      }
    }
  }

  /** What was parked is sent by another try, or still waits; and nothing else is tried again. */
  #checkAside(): void {
    for (const { events } of this.#besides) {
      for (const event of events) {
        const position = this.#byId.get(event.id)?.position
        if (position !== undefined && !this.#aside.has(position) && !this.#crashed)
          this.#reject('O5', `${nameOf(event)} was tried again, and was never parked`)
      }
    }
    for (const event of this.#byId.values()) {
      if (!this.#aside.has(event.position) || this.#taken.has(event.id) || this.#waiting.has(event.position)) continue
      this.#reject('O5', `${nameOf(event)} was parked, was never accepted, and does not wait any more`)
    }
  }
}

function acceptedOf({ events, taken }: Batch): string[] {
  return events.filter((_, index) => taken[index]).map(({ id }) => id)
}

/** Whether everything that a cursor counts as delivered counts as delivered in the next one. */
function covers(next: Cursor, now: Cursor): boolean {
  const from = now.done ? now.next : now.prev
  const isSame = same(next.prev, now.prev) && same(next.next, now.next)
  if (isSame) return next.done ? true : !now.done && next.after >= now.after
  return includes(next.prev, from) && includes(next.next, now.next) && (now.done || includes(next.prev, now.next))
}

function same(one: Snapshot, other: Snapshot): boolean {
  return one.end === other.end && one.inProgress.join() === other.inProgress.join()
}

/** Whether a snapshot shows everything that an earlier one shows. */
function includes(later: Snapshot, earlier: Snapshot): boolean {
  return (
    later.end >= earlier.end && later.inProgress.every((xid) => xid >= earlier.end || earlier.inProgress.includes(xid))
  )
}
