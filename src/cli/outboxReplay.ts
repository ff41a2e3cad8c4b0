import { existsSync } from 'node:fs'
import { constants } from 'node:os'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Delivery, OutboxEvent, ReplayOptions, Sink, SinkFunction } from '../index.ts'
import type { Call, Outcome } from './command.ts'
import { parsePosition } from './parseValues.ts'
import { untilInterrupted } from './interrupt.ts'
import { UsageError } from './usageError.ts'
import { withDatabase } from './withDatabase.ts'
import { count, singleLine } from './formatting.ts'

const STREAM =
  'A number is one of a stream: write --topic TOPIC --key KEY as well, or --from-position N for all streams.'

/** Sends retained events again: as lines on stdout, or to a sink of the caller's. */
export async function replay({ values }: Call): Promise<Outcome> {
  const range = rangeOf(values)
  const sink = new Remembering(values.sink === undefined ? linesOnStdout : await loadSink(values.sink))
  return withDatabase(values, async ({ lockstep }): Promise<Outcome> => {
    // Gently: a batch that was begun is completed, and where to continue is printed.
    const { replayed, interrupted } = await untilInterrupted(async (signal) => ({
      replayed: await lockstep.outbox.replay({ ...range, sink, signal }),
      interrupted: signal.aborted,
    }))
    const { events, position } = replayed
    return {
      exitCode: interrupted ? 128 + constants.signals.SIGINT : 0,
      json: {
        ok: !interrupted,
        command: 'outbox replay',
        schema: lockstep.schema,
        events,
        position,
        lastSeq: range.key === undefined ? null : (sink.last?.seq ?? null),
        interrupted,
      },
      text: () => describeReplay(events, sink.last, interrupted, range.key !== undefined),
    }
  })
}

type Range = Omit<ReplayOptions, 'sink'>

function rangeOf(values: Call['values']): Range {
  const { topic, key } = values
  const [fromSeq, toSeq, fromPosition] = (['from-seq', 'to-seq', 'from-position'] as const).map((option) => {
    const given = values[option]
    return given === undefined ? undefined : parsePosition(option, given)
  })
  if (key !== undefined && topic === undefined) {
    throw new UsageError('--key alone is no stream.', 'A stream is a topic and a key: write --topic TOPIC as well.')
  }
  const stray =
    key === undefined ? (['from-seq', 'to-seq'] as const).find((each) => values[each] !== undefined) : undefined
  if (stray !== undefined) throw new UsageError(`--${stray} is for one stream.`, STREAM)
  if (key !== undefined && fromPosition !== undefined) {
    throw new UsageError('--from-position is for all streams.', 'Of one stream write --from-seq N.')
  }
  if (fromSeq !== undefined && toSeq !== undefined && toSeq < fromSeq) {
    throw new UsageError(`From ${fromSeq} to ${toSeq} there is no number.`, 'Write the smaller one as --from-seq.')
  }
  return {
    ...(topic === undefined ? {} : { topic }),
    ...(key === undefined ? {} : { key }),
    ...(fromSeq === undefined ? {} : { fromSeq }),
    ...(toSeq === undefined ? {} : { toSeq }),
    ...(fromPosition === undefined ? {} : { fromPosition }),
  }
}

function describeReplay(
  events: number,
  last: OutboxEvent | undefined,
  interrupted: boolean,
  ofStream: boolean,
): string {
  if (last === undefined) return interrupted ? 'Interrupted before the first event.' : 'No event is retained of that.'
  const { topic, key, seq, position } = last
  const place = `the last ${singleLine(topic)}/${singleLine(key)} #${seq} at position ${position}`
  if (!interrupted) return `${count(events, 'event')}, ${place}.`
  const goOn = ofStream ? `--from-seq ${seq + 1}` : `--from-position ${position}`
  return `Interrupted after ${count(events, 'event')}, ${place}. Go on with ${goOn}.`
}

/** Passes on to another sink, and knows the last event that it took. */
class Remembering implements Sink {
  readonly name: string
  last: OutboxEvent | undefined
  readonly #sink: Sink

  constructor(sink: Sink) {
    this.name = sink.name
    this.#sink = sink
  }

  async open(): Promise<void> {
    await this.#sink.open?.()
  }

  async close(): Promise<void> {
    await this.#sink.close?.()
  }

  async send(...[events, context]: Parameters<Sink['send']>): Promise<readonly Delivery[]> {
    const answers = await this.#sink.send(events, context)
    if (answers.length !== events.length) {
      throw new Error(`The sink ${this.name} gave ${answers.length} answers for ${events.length} events.`)
    }
    this.last = events.at(-1)
    return answers
  }
}

const linesOnStdout: Sink = {
  name: 'stdout',
  async send(events) {
    await write(events.map((event) => `${lineOf(event)}\n`).join(''))
    return events.map(() => 'sent' as const)
  },
}

/** Not faster than it is read. */
function write(text: string): Promise<void> {
  return new Promise((done, fail) => {
    process.stdout.write(text, (error) => (error ? fail(error) : done()))
  })
}

/** The payload goes in as it was written: to parse it and to write it again would round large numbers. */
function lineOf(event: OutboxEvent): string {
  const { topic, key, seq, id, position, enqueuedAt, headers, tombstone, contentType, body } = event
  const head = JSON.stringify({ topic, key, seq, id, position, enqueuedAt, headers, tombstone })
  if (tombstone !== undefined) return head
  if (contentType !== 'application/json') return `${head.slice(0, -1)},"bytes":"${body.toString('base64')}"}`
  // Between the parts of a payload that was written in SQL there may be line ends; inside of texts JSON has none.
  return `${head.slice(0, -1)},"payload":${body.toString().replaceAll(/[\r\n]/g, ' ')}}`
}

/** A module of the caller's. Its path is one of the working directory's. */
async function loadSink(file: string): Promise<Sink> {
  const path = resolve(file)
  if (!existsSync(path)) {
    throw new UsageError(
      `There is no file ${JSON.stringify(file)}.`,
      'Write --sink with the path of a module, such as ./sink.mjs.',
    )
  }
  const { default: given } = await importOf(file, pathToFileURL(path))
  if (typeof given === 'function') return sinkOf(given as SinkFunction)
  if (typeof given === 'object' && given !== null && 'send' in given && typeof given.send === 'function') {
    return given as Sink
  }
  throw new UsageError(
    `The default export of ${JSON.stringify(file)} is neither a sink nor a function.`,
    'Write `export default async (events) => { … }` there, or export a sink.',
  )
}

async function importOf(file: string, url: URL): Promise<{ readonly default?: unknown }> {
  try {
    return (await import(url.href)) as { default?: unknown }
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause)
    throw new Error(`${JSON.stringify(file)} cannot be loaded: ${why}`, { cause })
  }
}

/** A function that answers nothing has taken everything. */
function sinkOf(given: SinkFunction): Sink {
  return {
    name: given.name === '' ? 'function' : given.name,
    send: async (events, context) => (await given(events, context)) ?? events.map(() => 'sent' as const),
  }
}
