import { setImmediate as immediately, setTimeout as sleep } from 'node:timers/promises'
import { FlushUnconfirmedError } from '../errors.ts'
import { readServerEpoch, type StatementResult, withConnection } from '../postgres/index.ts'
import type { Stream } from '../events/index.ts'
import { type LockstepContext, reportsLostConnection } from '../transactions/index.ts'
import { backoffMs } from './backoff.ts'
import { cursorsOfAnotherServer } from './cursorErrors.ts'
import { eventsIn, type EventColumns } from './eventColumns.ts'
import type { FetchedEvent } from './event.ts'
import type { Generations } from './generations.ts'
import { onPrimary } from './onPrimary.ts'
import { flush } from './flushToDisk.ts'
import { type Advance, moveAndFetch } from './outbox.sql.ts'

/** What the cursor of a shard has before it. */
export interface Window {
  readonly events: readonly FetchedEvent[]
  /** Places of events whose stream waits: they are put aside, not sent. */
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

interface Request {
  readonly shard: ReadingShard
  advance: Advance | undefined
  /** When it wants an answer, whatever it is. */
  until: number
  resolve(window: Window | 'lost'): void
  reject(error: Error): void
}

/** All of it text: whoever owns the pool may have its own way of reading numbers. */
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

/** Events come in at a steady pace: so long between two looks, so that each finds a few. */
const BUSY_MS = 2
/** Something was begun and is not committed yet. */
const STIRRING_MS = 4
/** Nothing happens: under 10 questions a second with all that a dispatcher asks. */
const IDLE_MS = 180
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
  readonly #failed: (error: unknown) => void
  #waiting: Request[] = []
  /** Those that wait, and those that are being asked for. */
  readonly #unanswered = new Set<Request>()
  #running = 0
  /** How many events of a shard are asked for, where that is fewer than a batch: because they are large, or the last question failed. */
  readonly #most = new Map<number, number>()
  #lastId = ''
  #pauseMs = IDLE_MS
  /** Whether the last look found as much as is worth another at once. */
  #plenty = false
  #wake: (() => void) | undefined
  #failures = 0

  constructor(
    context: LockstepContext,
    setting: { dispatcher: string; shards: number; batch: number; failed: (error: unknown) => void },
  ) {
    this.#context = context
    this.#dispatcher = setting.dispatcher
    this.#shards = setting.shards
    this.#batch = setting.batch
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
      if (advance !== undefined || shard.caughtUp.length > 0 || untilMs === 0) this.wake()
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
    this.#pauseMs = BUSY_MS
    this.#wake?.()
  }

  async #run(): Promise<void> {
    this.#running++
    try {
      while (this.#waiting.length > 0) {
        const now = performance.now()
        const urgent = this.#waiting.some(
          ({ advance, shard, until }) => advance !== undefined || shard.caughtUp.length > 0 || until <= now,
        )
        if (!urgent && this.#pauseMs > 0) {
          // One that waits is enough.
          if (this.#wake !== undefined) return
          await this.#pause(this.#pauseMs)
        }
        // Those that are about to be answered come along: a message costs more than a shard in it.
        await immediately()
        const requests = this.#takeOneOfEach(this.#plenty ? Math.ceil(this.#shards / LANES) : Infinity)
        if (requests.length === 0) return
        try {
          await this.#ask(requests)
          this.#failures = 0
        } catch (error) {
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

  /**
   * Of two questions for one shard, one whose lease is lost and its successor's, the second waits for the next message. No more than
   * `most`, where there is enough for all lanes.
   */
  #takeOneOfEach(most: number): Request[] {
    const shards = new Set<number>()
    const [now, later]: [Request[], Request[]] = [[], []]
    for (const request of this.#waiting) {
      const list = shards.has(request.shard.number) || now.length >= most ? later : now
      shards.add(request.shard.number)
      list.push(request)
    }
    this.#waiting = later
    return now
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer)
        this.#wake = undefined
        resolve()
      }
      const timer = setTimeout(end, ms)
      this.#wake = end
    })
  }

  async #ask(requests: Request[]): Promise<void> {
    const { driver, quotedSchema, silence } = this.#context
    const questions = requests.map(({ shard, advance }) => {
      const most = this.#most.get(shard.number) ?? this.#batch
      const { number, fence, history } = shard
      return { shard: number, fence, history, advance, unpark: [...shard.caughtUp], most }
    })
    const text = moveAndFetch(quotedSchema, this.#dispatcher, questions, this.#shards)
    const rows = await onPrimary(this.#context, async (connection) => rowsOf(await connection.script(text)))
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
    if (read.newEpoch || (read.visible && !(await this.#flush(read.windows)))) {
      await withConnection(driver, (connection) => readServerEpoch(connection, quotedSchema), silence)
      this.#waiting.push(...requests)
      return
    }
    this.#setPace(read.events, read.lastId)
    const now = performance.now()
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
  async #flush(windows: ReadonlyMap<number, Window | 'lost'>): Promise<boolean> {
    const { driver, quotedSchema, silence } = this.#context
    const life = await withConnection(driver, (connection) => flush(connection, quotedSchema), silence)
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

  #setPace(events: number, lastId: string): void {
    const stirred = lastId !== this.#lastId
    this.#lastId = lastId
    this.#plenty = events >= PLENTY
    if (this.#plenty) this.#pauseMs = 0
    else if (events > 0) this.#pauseMs = BUSY_MS
    else if (stirred) this.#pauseMs = STIRRING_MS
    else this.#pauseMs = Math.min(IDLE_MS, Math.max(STIRRING_MS, this.#pauseMs * 1.5))
  }
}

/** Two messages on their way: while one is answered, the shards of the other deliver. */
const LANES = 2
const FIRST_FAILURE_MS = 50
const LONGEST_FAILURE_MS = 2000

function rowsOf(results: readonly StatementResult[]): FetchRow[] {
  const found = results.find(({ rows }) => rows[0] !== undefined && 'verdict' in rows[0])
  return (found?.rows ?? []) as unknown as FetchRow[]
}
