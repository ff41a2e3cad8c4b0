import { setTimeout as sleep } from 'node:timers/promises'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, ReplayGapError, ReplayStoppedError } from '../errors.ts'
import { type StatementResult, type TextRow, withConnection } from '../postgres/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { nameOf } from '../events/index.ts'
import { checkNumber } from './checkNumber.ts'
import { type EventRow, FetchedEvent } from './event.ts'
import { auditReplay, eventsAfter, eventsOfStream, hasEnded, positionNow } from './outbox.sql.ts'
import { Generations } from './generations.ts'
import { onPrimary } from './onPrimary.ts'
import { audited } from './operatorOptions.ts'
import { resultRows } from './resultRows.ts'
import { type Delivery, type Sink, type SinkFunction, sinkOf } from './sink.ts'

/** How long a replay waits for transactions that are older than it. */
const SETTLE_MS = 2000
const SETTLE_LOOK_MS = 20

/** What is sent again: one stream, or everything from a position on, perhaps of one topic. */
export interface ReplayOptions {
  readonly sink: Sink | SinkFunction
  readonly topic?: string
  readonly key?: string
  /** The first and the last number, of one stream. */
  readonly fromSeq?: number
  readonly toSeq?: number
  /** After this position, of all streams: `event.position`. */
  readonly fromPosition?: number
  /** The maximum number of events at once. Default 500. */
  readonly batch?: number
  readonly signal?: AbortSignal
  /** With `reason` or `by`, the replay is written to the audit before the first event is sent. */
  readonly reason?: string
  readonly by?: string
}

/** Without its key, a replay of one stream would be one of the whole topic. */
const REPLAY_OPTIONS: OptionNames<ReplayOptions> = {
  sink: true,
  topic: 'never undefined',
  key: 'never undefined',
  fromSeq: true,
  toSeq: true,
  fromPosition: true,
  batch: true,
  signal: true,
  reason: true,
  by: true,
}

export interface Replayed {
  readonly events: number
  /**
   * To continue from: everything up to it was sent. Where a transaction that began before the replay stays open all the time, its events
   * may have smaller positions than some that were sent: then it is where this replay began.
   */
  readonly position: number
}

/** Sends retained events again, in order, until the end that they had when it began. Stops at the first that is not taken. */
export async function replay(context: LockstepContext, options: ReplayOptions): Promise<Replayed> {
  checkOptions('replay()', options, REPLAY_OPTIONS)
  const { topic, key, fromSeq = 1, toSeq, batch = 500, signal } = options
  checkNumber('fromSeq', fromSeq, 1)
  checkNumber('toSeq', toSeq ?? 1, 0)
  checkNumber('fromPosition', options.fromPosition ?? 0, 0)
  checkNumber('batch', batch, 1, 10_000)
  if (key !== undefined && topic === undefined) {
    throw new InvalidOptionError('replay() was given a key and no topic.', {
      advice: 'A stream is topic and key: name both.',
    })
  }
  if (key === undefined ? options.fromSeq !== undefined || toSeq !== undefined : options.fromPosition !== undefined) {
    throw new InvalidOptionError('replay() was given numbers without a stream, or a position with one.', {
      advice: 'Use fromSeq and toSeq with topic and key, fromPosition without a key.',
    })
  }
  const sink = sinkOf(options.sink)
  const who = audited(options)
  await context.ready()
  if (who.reason !== undefined || who.by !== undefined) {
    const seq = key === undefined ? undefined : fromSeq
    const written = auditReplay(context.quotedSchema, { topic, key, seq }, who)
    await onPrimary(context, (connection) => connection.script(written))
  }
  const { driver, quotedSchema, silence } = context
  const ask = (text: string): Promise<StatementResult<TextRow>[]> =>
    withConnection(driver, (connection) => connection.script(text), silence)
  const [here] = resultRows(await ask(positionNow(quotedSchema))) as unknown as [
    { position: string; after: string; history: string },
  ]
  const upTo = Number(here.position)
  // A replay owns no shard.
  const generations = await withConnection(driver, (connection) => Generations.read(connection, quotedSchema), silence)
  const under = { fence: 0n, history: here.history, generations }
  const settled = await untilSettled(async () => resultRows(await ask(hasEnded(here.after)))[0]?.['ended'] === 'true')
  let [events, position, nextSeq] = [0, options.fromPosition ?? 0, fromSeq]
  const retention = new Retention(topic === undefined || key === undefined ? undefined : `${topic}/${key}`)
  const held = new HeldStreams()
  await sink.open?.()
  try {
    while (!isAborted(signal)) {
      const results = await ask(
        topic !== undefined && key !== undefined
          ? eventsOfStream(quotedSchema, { topic, key }, nextSeq, toSeq, upTo, batch)
          : eventsAfter(quotedSchema, position, upTo, topic, batch),
      )
      const rows = rowsWith(results, 'event_id') as unknown as ReplayRow[]
      const last = rows.at(-1)
      const fetched = held.without(rows).map((row) => FetchedEvent.ofRow(row, under))
      const ended = (toSeq !== undefined && nextSeq > toSeq) || position >= upTo
      retention.check(rowsWith(results, 'emptied')[0] as unknown as EmptiedRow, { position, nextSeq, ended })
      if (last === undefined) break
      const { fence, history } = under
      const batchContext = {
        dispatcher: 'replay',
        shard: 0,
        fence,
        history,
        signal: signal ?? new AbortController().signal,
      }
      const wrong = fetched.find(({ fault }) => fault !== undefined)
      const sound = wrong === undefined ? fetched : fetched.slice(0, fetched.indexOf(wrong))
      const answers = sound.length === 0 ? [] : await sink.send(sound, batchContext)
      if (answers.length !== sound.length) {
        throw notTaken(sound[0] as FetchedEvent, {
          unknown: `${answers.length} answers for ${sound.length} events`,
        })
      }
      const failed = answers.findIndex((answer) => answer !== 'sent')
      if (failed >= 0) throw notTaken(sound[failed] as FetchedEvent, answers[failed] as Delivery)
      if (wrong !== undefined) throw notTaken(wrong, { refused: wrong.fault as string })
      events += fetched.length
      position = Number(last.event_id)
      nextSeq = Number(last.seq) + 1
    }
  } finally {
    await sink.close?.()
  }
  return { events, position: settled ? position : (options.fromPosition ?? 0) }
}

type ReplayRow = EventRow & {
  /** The time of the event has not come. */
  readonly held: string | null
}

/** Streams with an event whose time has not come: what is behind it is not sent either. */
class HeldStreams {
  readonly #names = new Set<string>()

  without(rows: readonly ReplayRow[]): readonly ReplayRow[] {
    return rows.filter((row) => {
      if (row.held !== null) this.#names.add(nameOf(row))
      return !this.#names.has(nameOf(row))
    })
  }
}

interface EmptiedRow {
  readonly emptied: string
  readonly gone: string | null
}

/**
 * Retention continues beside a replay, and may remove what it has not come to. What was not there when it began is not sent, and that is
 * known; what goes afterwards would be a gap in the middle of what it sends.
 */
class Retention {
  readonly #stream: string | undefined
  /** Up to here events had gone when the first ones were read. */
  #before: number | undefined

  constructor(stream: string | undefined) {
    this.#stream = stream
  }

  /** Looks at what was gone when events after `position`, of a stream from `nextSeq` on, were read. */
  check(row: EmptiedRow, { position, nextSeq, ended }: { position: number; nextSeq: number; ended: boolean }): void {
    const emptied = Number(row.emptied)
    this.#before ??= emptied
    if (emptied <= this.#before || ended) return
    if (this.#stream === undefined ? emptied <= position : row.gone !== 'true') return
    const what =
      this.#stream === undefined
        ? `events after position ${position}, up to ${emptied}`
        : `${this.#stream} #${nextSeq} and perhaps later ones`
    throw new ReplayGapError(`Retention removed ${what}, before the replay had read them.`, {
      advice: 'Everything before was sent. Replay from the oldest event that is left, and retain events longer.',
      position,
      ...(this.#stream === undefined ? {} : { seq: nextSeq }),
    })
  }
}

/** The rows of the statement whose rows have that column. */
function rowsWith(results: readonly StatementResult<TextRow>[], column: string): TextRow[] {
  return results.find(({ rows }) => rows[0] !== undefined && column in rows[0])?.rows ?? []
}

/** Transactions that were open when it began may yet put events between those that are there. Most are over in a moment. */
async function untilSettled(ended: () => Promise<boolean>): Promise<boolean> {
  for (const until = performance.now() + SETTLE_MS; performance.now() < until;) {
    if (await ended()) return true
    await sleep(SETTLE_LOOK_MS)
  }
  return false
}

function isAborted(signal: AbortSignal | undefined): boolean {
  return signal?.aborted ?? false
}

function notTaken({ topic, key, seq, position }: FetchedEvent, answer: Delivery): ReplayStoppedError {
  const reason = reasonOf(answer)
  return new ReplayStoppedError(`The sink did not accept ${topic}/${key} #${seq} at position ${position}: ${reason}.`, {
    advice: 'Everything before it was sent. Continue from there when the sink accepts it.',
    cause: answer === 'sent' ? undefined : answer.cause,
    seq,
    position,
  })
}

function reasonOf(answer: Delivery): string {
  if (answer === 'sent') return ''
  if ('refused' in answer) return answer.refused
  if ('failed' in answer) return answer.failed
  return 'slow' in answer ? answer.slow : answer.unknown
}
