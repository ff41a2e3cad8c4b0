import { setImmediate as immediately, setTimeout as sleep } from 'node:timers/promises'
import { FlushUnconfirmedError } from '../errors.ts'
import { LONGEST_TIMER_MS, readServerEpoch, type StatementResult, withConnection } from '../postgres/index.ts'
import type { Stream } from '../events/index.ts'
import { type LockstepContext, reportsLostConnection } from '../transactions/index.ts'
import { backoffMs } from './backoff.ts'
import { cursorsOfAnotherServer } from './cursorErrors.ts'
import type { Bell, Heard } from './bell.ts'
import { eventsIn, type EventColumns } from './eventColumns.ts'
import type { FetchedEvent } from './event.ts'
import type { Generations } from './generations.ts'
import { type Groups, shardsOf } from './groups.ts'
import { onPrimary } from './onPrimary.ts'
import { flush } from './flushToDisk.ts'
import { type Advance, moveAndFetch } from './outbox.sql.ts'
import { BELIEVED_MS } from './ringer.ts'
import { type RingTopics, wantsAny } from './ringTopics.ts'

/** What the cursor of a shard has before it. */
export interface Window {
  readonly events: readonly FetchedEvent[]
  /** Positions of events whose stream waits: they are parked, not sent. */
  readonly waiting: ReadonlySet<number>
  readonly life: string
  readonly prev: string
  readonly next: string
  readonly version: string
  /** How far ids had been given out when it was read. */
  readonly seenId: string
  /** Whether there is nothing more in it. */
  readonly whole: boolean
  /** Until a stream of this shard is due for another try; undefined where none waits for one. */
  readonly parkedDueMs: number | undefined
  /** Whether a segment waits for this cursor to be written, although there is nothing to deliver. */
  readonly stale: boolean
}

/** A shard that reads. */
export interface ReadingShard {
  readonly number: number
  readonly fence: bigint
  /** In which the fence was given out. */
  readonly history: string
  readonly generations: Generations
  /** Streams to be taken out of the list of those that wait, before the next reading. What was taken out is removed from here. */
  readonly caughtUp: Stream[]
  /** Whether a stream that is due is reason enough for an answer. */
  readonly heedsParked: boolean
}

/** What happens to the shards of a dispatcher while there is nothing to do. */
export interface Rest {
  /** Lets all shards rest, if these are all. */
  begin(shards: number): boolean
  /** Ends the rest: shards that no other process has taken are owned as before. If that is not known, the rest continues. */
  end(): Promise<void>
}

interface Request {
  readonly shard: ReadingShard
  advance: Advance | undefined
  /** When it wants an answer, whatever it is. */
  until: number
  resolve(window: Window | 'lost'): void
  reject(error: Error): void
}

/** All of it text: the owner of the pool may have its own way of reading numbers. */
interface FetchRow extends EventColumns {
  readonly shard: string
  readonly verdict: 'elsewhere' | 'lost' | 'durable' | 'visible'
  readonly life: string | null
  readonly prev: string
  readonly next: string
  readonly version: string
  readonly last_id: string
  readonly parked_due_ms: string | null
  readonly stale: string | null
  readonly whole: string | null
}

/** The pause between two looks while events arrive at a steady pace, so that each finds a few. */
const BUSY_MS = 2
/** Something was begun and is not committed yet. */
const STIRRING_MS = 4
/** The longest pause while nothing happens and no writer rings: fewer than 10 queries a second, with all that a dispatcher asks. */
const IDLE_MS = 180
/** Nothing happens, and writers ring: for those that do not, or that have died between COMMIT and bell. */
const LISTENING_MS = 60_000
/** Shards rest when the pause has grown to this share of the ttl of their leases: nothing happened for about twice the ttl. */
const REST_AT = 0.6
/** A rest ends after this time, or a twelfth of the retention, so that old segments are removed. */
const UPKEEP_MS = 6 * 60 * 60 * 1000
/** Asleep: before writers stop ringing for it. */
const ASLEEP_MS = 12 * 24 * 60 * 60 * 1000
/** The same while rings come. */
const RINGING_MS = 250
/** A stream that is due so soon is looked for often. */
const SOON_MS = 1000
/** A moment after it is due. */
const AFTER_DUE_MS = 1
/** How long a resting dispatcher leaves a due stream of another process's shard to that process. */
const OTHERS_DUE_MS = 1000
/** It has been quiet for three times as long: the bell is worth asking for. */
const ASK_FOR_BELL_MS = 20
/** How often it looks until every writer knows that a dispatcher listens. */
const UNHEARD_OF_MS = BELIEVED_MS + 500
const LOOK_MEANWHILE_MS = 10
/** A ring for which nothing was there. */
const LOOK_AFTER_RING_MS = 50
/** If a notification leads to this number of events, the traffic is dense. */
const DENSE_EVENTS = 4
/** After this number of consecutive looks with this number of events, the reader needs no bell, because it looks all the time. */
const BUSY_LOOKS = 64
const BUSY_EVENTS = 8
/** What is read for one shard at a time. The server has a limit of its own, twice as high: there it has read for nothing. */
const PIECE_BYTES = 4_000_000
/** A look that found this many is worth another at once. */
const PLENTY = 200

/**
 * Reads for all shards of a dispatcher in one process: one message moves the cursors of those that have delivered and reads on for
 * those that wait. What it has read is what the shards' rows say; nothing is remembered between two messages but the pace.
 */
export class Reader {
  readonly #context: LockstepContext
  readonly #dispatcher: string
  readonly #shards: number
  readonly #batch: number
  /** Null: all. */
  readonly #topics: readonly string[] | null
  readonly #failed: (error: unknown) => void
  #waiting: Request[] = []
  /** Those that wait, and those that are being asked for. */
  readonly #unanswered = new Set<Request>()
  #running = 0
  /** How many events of a shard are asked for, where that is fewer than a batch: because they are large, or the last question failed. */
  readonly #most = new Map<number, number>()
  #lastId = ''
  #pauseMs = IDLE_MS
  /** When all shards that wait are looked at again. */
  #dueAt = performance.now() + IDLE_MS
  /** Whether something may have been committed that the snapshot of the last look at all shards does not show. */
  #again = false
  /** Shards for which something was committed, and that were not looked at since. */
  readonly #rung = new Set<number>()
  /** The end of the log just before the last ring, for the next look. */
  #rungAt: string | undefined
  /** When writers were asked to ring; undefined if they were not, or if there is no connection to listen on. */
  #listeningSince: number | undefined
  #asking = false
  #askAgainAt = 0
  /** Since when the shards rest. */
  #restingSince: number | undefined
  /** When the next stream of a shard is due that waits for another try or for a time; as of the last look at it. */
  readonly #dueIn = new Map<number, number>()
  /** Whether that is known of all shards. */
  #dueKnown = false
  #busyLooks = 0
  /** Whether the last look found as much as is worth another at once. */
  #plenty = false
  #wake: (() => void) | undefined
  #failures = 0
  readonly #bell: Bell
  readonly #rest: Rest
  readonly #ttlMs: number
  readonly #upkeepMs: number
  readonly #sleepAfterMs: number

  constructor(
    context: LockstepContext,
    setting: {
      dispatcher: string
      shards: number
      batch: number
      ttlMs: number
      retainMs: number | false
      sleepAfterMs: number | false
      topics: readonly string[] | null
      failed: (error: unknown) => void
    },
    bell: (heard: Heard) => Bell,
    rest: Rest,
  ) {
    this.#rest = rest
    this.#ttlMs = setting.ttlMs
    this.#upkeepMs = setting.retainMs === false ? Infinity : Math.max(UPKEEP_MS, setting.retainMs / 12)
    this.#sleepAfterMs = setting.sleepAfterMs === false ? Infinity : setting.sleepAfterMs
    this.#bell = bell((groups, topics, rungAt) => this.#heard(groups, topics, rungAt))
    this.#context = context
    this.#dispatcher = setting.dispatcher
    this.#shards = setting.shards
    this.#batch = setting.batch
    this.#topics = setting.topics
    this.#failed = setting.failed
  }

  /**
   * Moves the shard's cursor, if it is to be moved, and comes back with what is next: as soon as there are events, a stream is due, or
   * `untilMs` has passed. It fails where the server is another than that of the cursors, and only then.
   */
  next(shard: ReadingShard, advance: Advance | undefined, untilMs: number): Promise<Window | 'lost'> {
    return new Promise((answer, refuse) => {
      const resolve = (window: Window | 'lost'): void => {
        this.#unanswered.delete(request)
        answer(window)
      }
      const reject = (error: Error): void => {
        this.#unanswered.delete(request)
        refuse(error)
      }
      const request: Request = { shard, advance, resolve, reject, until: performance.now() + untilMs }
      this.#unanswered.add(request)
      this.#waiting.push(request)
      // A shard that was just taken, or whose last batch the sink has not taken.
      if (this.#listeningSince !== undefined && advance === undefined) this.#rung.add(shard.number)
      if (advance !== undefined || shard.caughtUp.length > 0 || untilMs === 0 || this.#rung.has(shard.number))
        this.wake()
      if (this.#running < LANES) void this.#run()
    })
  }

  /** The shard wants its answer now. */
  hurry(shard: ReadingShard): void {
    for (const request of this.#unanswered) if (request.shard === shard) request.until = 0
    this.wake()
  }

  /** Something may have been committed. */
  wake(): void {
    if (this.#listeningSince === undefined) {
      this.#pauseMs = BUSY_MS
      this.#dueAt = 0
    }
    this.#wake?.()
  }

  /** Something was committed, which a snapshot from now on shows. Of topics that are not wanted it is passed at the next look. */
  committed(groups: Groups, topics: RingTopics): void {
    if (!wantsAny(this.#topics, topics)) return
    if (this.#listeningSince === undefined) {
      this.#again = true
      return this.wake()
    }
    for (const shard of shardsOf(groups, this.#shards)) this.#rung.add(shard)
    this.#wake?.()
  }

  /** Wants to hear what is committed in other processes. Can be called again. */
  listen(): void {
    this.#bell.start()
  }

  async close(): Promise<void> {
    await this.#bell.stop()
  }

  #heard(groups: Groups | undefined, topics?: RingTopics, rungAt?: string): void {
    this.#rungAt = rungAt
    if (groups !== undefined) return this.committed(groups, topics)
    // The connection is gone, or was: until writers have been asked again, and a look has followed, it looks as without a bell.
    this.#listeningSince = undefined
    this.#pauseMs = Math.min(this.#pauseMs, IDLE_MS)
    this.#dueAt = 0
    this.#again = true
    this.#wake?.()
  }

  async #run(): Promise<void> {
    this.#running++
    try {
      while (this.#waiting.length > 0) {
        if (!this.#waiting.some((request) => this.#isUrgent(request))) {
          // One that waits is enough.
          if (this.#wake !== undefined || this.#asking) return
          if (await this.#askForBell()) continue
          this.#letRest()
          await this.#pause()
          continue
        }
        if (this.#restingSince !== undefined) {
          if (this.#asking) return
          await this.#rouse()
          continue
        }
        // Those that are about to be answered come along: a message costs more than a shard in it.
        await immediately()
        const full = this.#listeningSince === undefined || performance.now() >= this.#dueAt
        const requests = this.#takeOneOfEach(full, this.#plenty ? Math.ceil(this.#shards / LANES) : Infinity)
        if (requests.length === 0) continue
        try {
          await this.#ask(requests, full)
          this.#failures = 0
        } catch (error) {
          this.#dueAt = 0
          const impatient = performance.now()
          for (const request of requests) {
            // It may have been too much for the server.
            const ofServer = reportsLostConnection(error) || error instanceof FlushUnconfirmedError
            if (!ofServer) this.#askForLess(request.shard.number)
            if (request.until <= impatient) request.resolve('lost')
            else this.#waiting.push(request)
          }
          this.#failed(error)
          await sleep(backoffMs(this.#failures++, FIRST_FAILURE_MS, LONGEST_FAILURE_MS))
        }
      }
    } finally {
      this.#running--
    }
  }

  /** When the next stream of these shards is due. */
  get #nextDue(): number {
    let next = Infinity
    for (const due of this.#dueIn.values()) if (due < next) next = due
    return next
  }

  /** Whether a stream is tried again now or in a moment: then it looks often, since the outcome decides when it is due next. */
  get #parked(): boolean {
    return !this.#dueKnown || this.#nextDue < performance.now() + SOON_MS
  }

  /** After this time, or when the next stream is due. */
  #lookIn(ms: number, now: number): number {
    const due = this.#nextDue
    return due > now ? Math.min(now + ms, due + AFTER_DUE_MS) : now + ms
  }

  #isUrgent({ advance, shard, until }: Request): boolean {
    const now = performance.now()
    if (this.#restingSince !== undefined) return until === 0 || now >= this.#dueAt || this.#rung.size > 0
    return (
      advance !== undefined ||
      shard.caughtUp.length > 0 ||
      until <= now ||
      now >= this.#dueAt ||
      this.#rung.has(shard.number)
    )
  }

  /**
   * Registers for the bell, if it has a direct connection and found nothing for a while. True: writers ring from now on. What was committed
   * before, or by a writer that does not know of the registration yet, is found by looking: at once, and then every few milliseconds for as
   * long as a writer can believe that no dispatcher listens.
   */
  async #askForBell(): Promise<boolean> {
    const listening = this.#listeningSince !== undefined && !this.#bell.lapsed
    if (this.#restingSince !== undefined || performance.now() < this.#askAgainAt) return false
    if (!this.#bell.hears || (listening ? !this.#bell.lapses : this.#pauseMs < ASK_FOR_BELL_MS && !this.#bell.lapsed))
      return false
    this.#asking = true
    try {
      await this.#bell.ask()
      if (listening || !this.#bell.hears) return false
      this.#listeningSince = performance.now()
      this.#pauseMs = BUSY_MS
      this.#dueAt = 0
      return true
    } catch (error) {
      // Such as a schema that is not migrated yet, or a role without the right.
      this.#askAgainAt = performance.now() + LISTENING_MS
      this.#listeningSince = undefined
      this.#pauseMs = Math.min(this.#pauseMs, IDLE_MS)
      this.#failed(error)
      return false
    } finally {
      this.#asking = false
    }
  }

  /** All shards have nothing to do, and writers ring: from here on one look a minute, and no lease is renewed. */
  #letRest(): void {
    const quiet =
      this.#listeningSince !== undefined &&
      this.#pauseMs >= this.#ttlMs * REST_AT &&
      !this.#parked &&
      this.#rung.size === 0
    if (!quiet || this.#restingSince !== undefined || this.#waiting.length < this.#unanswered.size) return
    if (!this.#rest.begin(this.#waiting.length)) return
    this.#restingSince = performance.now()
    this.#dueAt = this.#lookIn(Math.min(LISTENING_MS, this.#sleepAfterMs), this.#restingSince)
  }

  /**
   * Ends the rest if a writer rang, if this process committed events or stops, or if the database has work that no ring announced. It
   * asks about all shards: no other process notices an owner that died while its shards rested.
   */
  async #rouse(): Promise<void> {
    this.#asking = true
    try {
      const now = performance.now()
      const overdue = now - (this.#restingSince ?? now) >= this.#upkeepMs
      const told =
        overdue ||
        this.#nextDue <= now ||
        this.#rung.size > 0 ||
        this.#listeningSince === undefined ||
        // Writers can still believe that no dispatcher listens: one look is not enough.
        this.#bell.lapsed ||
        this.#waiting.some(({ until }) => until === 0)
      if (!told) {
        const forGood = now - (this.#restingSince ?? now) >= this.#sleepAfterMs
        const { stirred, dueMs } = await this.#bell.askAndLook(this.#dispatcher, this.#shards, forGood)
        if (!stirred) {
          const at = performance.now()
          this.#dueAt = Math.min(this.#lookIn(forGood ? ASLEEP_MS : LISTENING_MS, at), at + dueMs + OTHERS_DUE_MS)
          return
        }
      }
      await this.#rest.end()
      this.#restingSince = undefined
      this.#pauseMs = BUSY_MS
      this.#dueAt = 0
      this.#failures = 0
    } catch (error) {
      this.#failed(error)
      for (const request of this.#waiting.splice(0)) {
        if (request.until === 0) request.resolve('lost')
        else this.#waiting.push(request)
      }
      this.#dueAt = 0
      await sleep(backoffMs(this.#failures++, FIRST_FAILURE_MS, LONGEST_FAILURE_MS))
    } finally {
      this.#asking = false
    }
  }

  /**
   * Of two questions for one shard, one whose lease is lost and its successor's, the second waits for the next message. No more than
   * `most`, where there is enough for all lanes. Unless `full`, only those that have a reason: while writers ring, a shard without a ring
   * is read when it is due, because eight shards take three times as long as one.
   */
  #takeOneOfEach(full: boolean, most: number): Request[] {
    const shards = new Set<number>()
    const [now, later]: [Request[], Request[]] = [[], []]
    for (const request of this.#waiting) {
      const { number } = request.shard
      const list = shards.has(number) || now.length >= most || !(full || this.#isUrgent(request)) ? later : now
      shards.add(number)
      list.push(request)
    }
    // A ring that arrives from here on can be about a commit that the snapshot of this look does not show.
    for (const { shard } of now) this.#rung.delete(shard.number)
    if (full) {
      this.#dueAt = performance.now() + this.#pauseMs
      this.#again = false
      // Of others: those that are asked about just now are asked about again; those that deliver read afterwards in any case.
      const asked = new Set([...this.#unanswered].map(({ shard }) => shard.number))
      for (const shard of this.#rung) if (!asked.has(shard)) this.#rung.delete(shard)
    }
    this.#waiting = later
    return now
  }

  /** Until all are to be looked at, or one of them wants its answer. */
  #pause(): Promise<void> {
    const until = this.#restingSince === undefined ? this.#waiting.map((request) => request.until) : []
    const ms = Math.min(LONGEST_TIMER_MS, Math.min(this.#dueAt, ...until) - performance.now())
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer)
        this.#wake = undefined
        resolve()
      }
      const timer = setTimeout(end, Math.max(0, ms))
      this.#wake = end
    })
  }

  /** `full`: these are all that wait. */
  async #ask(requests: Request[], full: boolean): Promise<void> {
    const { driver, quotedSchema, silence } = this.#context
    const questions = requests.map(({ shard, advance }) => {
      const most = this.#most.get(shard.number) ?? this.#batch
      const { number, fence, history } = shard
      return { shard: number, fence, history, advance, unpark: [...shard.caughtUp], most }
    })
    const text = moveAndFetch(quotedSchema, this.#dispatcher, questions, this.#shards, this.#rungAt)
    this.#rungAt = undefined
    const { rows, flushed } = await onPrimary(this.#context, async (connection) =>
      answerOf(await connection.script(text)),
    )
    // Whatever was to be moved has been, or the rows tell where they are instead.
    requests.forEach((request, index) => {
      request.advance = undefined
      request.shard.caughtUp.splice(0, questions[index]?.unpark.length)
    })
    if (rows[0]?.verdict === 'elsewhere') {
      for (const request of requests) request.reject(cursorsOfAnotherServer(this.#dispatcher))
      return
    }
    const read = this.#sort(requests, rows)
    if (read.newEpoch || (read.visible && !(await this.#isOnDisk(read.windows, flushed)))) {
      await withConnection(driver, (connection) => readServerEpoch(connection, quotedSchema), silence)
      this.#waiting.push(...requests)
      this.#dueAt = 0
      return
    }
    const now = performance.now()
    if (full) this.#dueIn.clear()
    for (const [shard, window] of read.windows) {
      if (window === 'lost' || window.parkedDueMs === undefined) this.#dueIn.delete(shard)
      else this.#dueIn.set(shard, now + window.parkedDueMs)
    }
    this.#dueKnown ||= full
    this.#setPace(read.events, read.lastId, full)
    for (const request of requests) {
      const { shard } = request
      const window = read.windows.get(shard.number)
      const due = shard.heedsParked && window !== undefined && window !== 'lost' && (window.parkedDueMs ?? 1) <= 0
      const stale = window !== undefined && window !== 'lost' && window.stale
      if (
        window !== undefined &&
        (window === 'lost' || window.events.length > 0 || due || stale || now >= request.until)
      ) {
        request.resolve(window)
      } else this.#waiting.push(request)
    }
  }

  /** False where the server has had a crash since the windows were read: what is in them may be gone. */
  async #isOnDisk(windows: ReadonlyMap<number, Window | 'lost'>, flushed: string | null): Promise<boolean> {
    const { driver, quotedSchema, silence } = this.#context
    // Where a standby is waited for, the message that read has not flushed.
    const life = flushed ?? (await withConnection(driver, (connection) => flush(connection, quotedSchema), silence))
    return [...windows.values()].every((window) => window === 'lost' || window.life === life)
  }

  #sort(
    requests: readonly Request[],
    rows: readonly FetchRow[],
  ): { windows: Map<number, Window | 'lost'>; newEpoch: boolean; visible: boolean; events: number; lastId: string } {
    const windows = new Map<number, Window | 'lost'>()
    const shards = new Map(requests.map(({ shard }) => [shard.number, shard]))
    let [newEpoch, visible, total, lastId] = [false, false, 0, this.#lastId]
    for (const row of rows) {
      const shard = Number(row.shard)
      const reading = shards.get(shard) as ReadingShard
      if (row.verdict === 'lost') windows.set(shard, 'lost')
      else if (row.life === null) newEpoch = true
      // The fence was given out before a crash or a failover: a shard is owned within one history.
      else if (row.life !== reading.history) windows.set(shard, 'lost')
      else {
        const { life, prev, next, version, last_id: seenId } = row
        const { events, waiting } = eventsIn(row, reading)
        if (row.verdict === 'visible' && events.length > 0) visible = true
        total += events.length
        if (row.ids === null) this.#most.delete(shard)
        else this.#learnSize(shard, events.length, row.bodies.length + row.headers.length)
        lastId = seenId
        const parkedDueMs = row.parked_due_ms === null ? undefined : Number(row.parked_due_ms)
        const [whole, stale] = [row.whole !== null, row.stale !== null]
        windows.set(shard, { events, waiting, life, prev, next, version, whole, parkedDueMs, stale, seenId })
      }
    }
    return { windows, newEpoch, visible, events: total, lastId }
  }

  #askForLess(shard: number): void {
    this.#most.set(shard, Math.max(1, (this.#most.get(shard) ?? this.#batch) >> 3))
  }

  #learnSize(shard: number, events: number, bytes: number): void {
    const most = Math.max(1, Math.floor((PIECE_BYTES * events) / bytes))
    if (most < this.#batch) this.#most.set(shard, most)
    else this.#most.delete(shard)
  }

  #setPace(events: number, lastId: string, full: boolean): void {
    // Of a dispatcher that does not want all topics that says nothing: it would look every few milliseconds while others enqueue. Where writers ring
    // it hears of what is its own, and would look that often for events of other processes' shards.
    const stirred = lastId !== this.#lastId && this.#topics === null && this.#listeningSince === undefined
    this.#lastId = lastId
    this.#plenty = events >= PLENTY
    this.#busyLooks = events >= BUSY_EVENTS ? this.#busyLooks + 1 : 0
    const now = performance.now()
    if (this.#listeningSince !== undefined && this.#busyLooks >= BUSY_LOOKS) {
      this.#listeningSince = undefined
      // Where it fails, writers ring for a while without need.
      void this.#bell.decline().catch(() => undefined)
    }
    if (!full && this.#listeningSince !== undefined) {
      // Rings that stand for many events become fewer.
      if (events >= DENSE_EVENTS) this.#pauseMs = BUSY_MS
      const lookInMs = events === 0 ? LOOK_AFTER_RING_MS : Math.min(this.#pauseMs, this.#parked ? IDLE_MS : RINGING_MS)
      if (events > 0) this.#pauseMs = lookInMs
      this.#dueAt = Math.min(this.#dueAt, this.#lookIn(lookInMs, now))
      return
    }
    if (this.#plenty) this.#pauseMs = 0
    else if (events > 0) this.#pauseMs = BUSY_MS
    else if (stirred) this.#pauseMs = STIRRING_MS
    else this.#pauseMs = Math.min(this.#longestPauseMs(now), Math.max(STIRRING_MS, this.#pauseMs * 1.5))
    // Where each look finds some, the pause lets a few come together.
    this.#dueAt = this.#again && events === 0 ? 0 : this.#lookIn(this.#pauseMs, now)
  }

  #longestPauseMs(now: number): number {
    if (this.#listeningSince === undefined || this.#parked) return IDLE_MS
    return now < this.#listeningSince + UNHEARD_OF_MS ? LOOK_MEANWHILE_MS : LISTENING_MS
  }
}

/** Two messages on their way: while one is answered, the shards of the other deliver. */
const LANES = 2
const FIRST_FAILURE_MS = 50
const LONGEST_FAILURE_MS = 2000

/** What was read, and the history in which it was brought to disk, if it was. */
function answerOf(results: readonly StatementResult[]): { rows: FetchRow[]; flushed: string | null } {
  const having = (column: string): StatementResult | undefined =>
    results.find(({ rows }) => rows[0] !== undefined && column in rows[0])
  return {
    rows: (having('verdict')?.rows ?? []) as unknown as FetchRow[],
    flushed: (having('flushed')?.rows[0]?.['flushed'] as string | null | undefined) ?? null,
  }
}
