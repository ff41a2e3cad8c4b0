/** What a run of the outbox left behind, of one dispatcher: what was committed, read, owned and sent. replay.ts judges it. */
export interface Trace {
  readonly events: readonly CommittedEvent[]
  readonly ticks: readonly Tick[]
  /** Of each shard, in the order of their versions. */
  readonly cursors: readonly Cursor[]
  /** What the sink was given, in the order in which it came. */
  readonly batches: readonly Batch[]
  /** Events that are parked at the end, by position. */
  readonly waiting: readonly number[]
  /** Numbers that two writers have taken: the codes of the errors that one of them received. */
  readonly clashes: readonly string[]
  /** Whether the server had a crash: the last cursors and ticks before it are not here. */
  readonly crashed: boolean
  /** Whether the run continued until there was nothing more to send. */
  readonly complete: boolean
}

/** The transactions that a snapshot shows: those that had ended before `end`, but for those in progress. */
export interface Snapshot {
  readonly end: number
  readonly inProgress: readonly number[]
}

export interface CommittedEvent {
  readonly shard: number
  /** Grows within a stream. */
  readonly position: number
  readonly xid: number
  readonly stream: string
  readonly seq: number
  readonly id: string
}

/** A snapshot that a writer has recorded. */
export interface Tick {
  readonly xid: number
  readonly snapshot: Snapshot
}

/** How far a shard is: what `prev` shows is delivered, and of what `next` shows everything up to `after`, or all of it. */
export interface Cursor {
  readonly shard: number
  readonly version: number
  readonly fence: string
  readonly prev: Snapshot
  readonly next: Snapshot
  readonly after: number
  readonly done: boolean
  /** The positions of events that were parked in the same step. */
  readonly aside: readonly number[]
}

/** One call of the sink. */
export interface Batch {
  readonly shard: number
  readonly fence: string
  /** Another try of events that were parked. */
  readonly beside: boolean
  readonly events: readonly Pick<CommittedEvent, 'stream' | 'seq' | 'id' | 'position'>[]
  /** For each of them whether it was accepted. */
  readonly taken: readonly boolean[]
}

/** A snapshot as PostgreSQL writes it: `10:20:10,14`. */
export function readSnapshot(text: string): Snapshot {
  const [, end = '1', inProgress = ''] = text.split(':')
  return { end: Number(end), inProgress: inProgress === '' ? [] : inProgress.split(',').map(Number) }
}

export function shows({ end, inProgress }: Snapshot, xid: number): boolean {
  return xid < end && !inProgress.includes(xid)
}

/** A line of JSON for each part, so that long traces can be looked through. */
export function writeTrace({ events, ticks, cursors, batches, ...rest }: Trace): string {
  const lines = [
    { trace: 1, ...rest },
    ...events.map((event) => ({ event })),
    ...ticks.map((tick) => ({ tick })),
    ...cursors.map((cursor) => ({ cursor })),
    ...batches.map((batch) => ({ batch })),
  ]
  return `${lines.map((line) => JSON.stringify(line)).join('\n')}\n`
}

export function readTrace(text: string): Trace {
  const lines = text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
  const all = <Part>(kind: string): Part[] => lines.flatMap((line) => (kind in line ? [line[kind] as Part] : []))
  const { trace, ...rest } = lines[0] as unknown as Omit<Trace, 'events' | 'ticks' | 'cursors' | 'batches'> & {
    trace: number
  }
  if (trace !== 1) throw new Error(`This is no trace of prove, or one of another version: ${String(trace)}.`)
  return { ...rest, events: all('event'), ticks: all('tick'), cursors: all('cursor'), batches: all('batch') }
}
