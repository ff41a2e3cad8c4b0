import type { ConsumerStatus, PositionPage } from '../index.ts'
import type { Call, Command, OptionName, Outcome } from './command.ts'
import { forJson } from './forJson.ts'
import { count, formatAge, shorten, singleLine } from './formatting.ts'
import { operate } from './outboxStreams.ts'
import { parseNumber } from './parseValues.ts'
import { table } from './table.ts'
import type { Terminal } from './terminal.ts'
import { UsageError } from './usageError.ts'
import { withDatabase } from './withDatabase.ts'

const NAME_WIDTH = 40

/** One use of the command. */
interface Verb {
  readonly usage: string
  /** What it takes beside the database and `--json`. */
  readonly options: readonly OptionName[]
  /** How many words follow it. */
  readonly words: number
  run(call: Call, advice: string): Promise<Outcome>
}

const COMMON: readonly OptionName[] = ['url', 'schema', 'driver', 'json']

const VERBS: Readonly<Record<string, Verb>> = {
  list: { usage: 'list', options: [], words: 0, run: list },
  positions: {
    usage: 'positions CONSUMER [--topic TOPIC]',
    options: ['topic', 'limit', 'cursor'],
    words: 1,
    run: positions,
  },
  retry: { usage: 'retry CONSUMER TOPIC KEY', options: [], words: 3, run: onStream('retry') },
  skip: { usage: 'skip CONSUMER TOPIC KEY --reason TEXT', options: ['reason'], words: 3, run: onStream('skip') },
}

export const consumersCommand: Command = {
  name: 'consumers',
  summary: 'Show the lag and the positions of consumers, and why streams wait. Retry or skip',
  usage: '[VERB]',
  details: `A consumer receives events: from the outbox of this database, as a dispatcher of the same name, or from a broker.
"streams" is the number of streams in which it has a position in the inbox of this database. For consumers of a broker, this
database knows nothing else.
The verbs:

  list       List every consumer with its lag, and the streams that have waited longest, with the reason. The default
  positions  CONSUMER: Show the number of the last handled event of each stream, page by page
  retry      CONSUMER TOPIC KEY: Retry a stream that waits, now
  skip       CONSUMER TOPIC KEY --reason TEXT: Give up the first event of a stream that waits. The consumer continues behind it

To pause, resume and redrive, use the outbox: pg-lockstep outbox pause TOPIC KEY --dispatcher CONSUMER`,
  examples: [
    { line: 'pg-lockstep consumers', does: 'list consumers and waiting streams' },
    { line: 'pg-lockstep consumers positions billing --topic orders', does: 'positions of a consumer' },
    { line: 'pg-lockstep consumers retry billing orders 42', does: 'after you have fixed the cause' },
    {
      line: 'pg-lockstep consumers skip billing orders 42 --reason "wrong currency"',
      does: 'give up the first event of the stream',
    },
  ],
  options: [...COMMON, ...new Set(Object.values(VERBS).flatMap(({ options }) => options))],
  words: Object.keys(VERBS),
  moreWords: 3,
  async run(call) {
    const [name = 'list', ...words] = call.words
    const verb = VERBS[name] as Verb
    const advice = `Write \`pg-lockstep consumers ${verb.usage}\`.`
    const stray = (Object.keys(call.values) as OptionName[]).find(
      (option) => ![...COMMON, ...verb.options].includes(option),
    )
    if (stray !== undefined) throw new UsageError(`\`consumers ${name}\` takes no --${stray}.`, advice)
    if (words.length > verb.words) {
      throw new UsageError(
        `\`consumers ${name}\` cannot do anything with ${JSON.stringify(words[verb.words])}.`,
        advice,
      )
    }
    return verb.run(call, advice)
  },
}

function list({ values }: Call): Promise<Outcome> {
  return withDatabase(values, async ({ lockstep }): Promise<Outcome> => {
    const consumers = await lockstep.consumers.list()
    return {
      exitCode: 0,
      json: {
        ok: true,
        command: 'consumers list',
        schema: lockstep.schema,
        at: new Date().toISOString(),
        consumers: consumers.map((consumer) => forJson({ ...consumer, topics: consumer.topics ?? null })),
      },
      text: (terminal) => report(consumers, terminal),
    }
  })
}

function positions({ words: [, consumer], values }: Call, advice: string): Promise<Outcome> {
  if (!consumer) throw new UsageError('No consumer was named.', advice)
  const { topic, cursor } = values
  const limit = parseNumber('limit', values.limit ?? '100')
  if (limit === 0 || limit > 10_000) throw new UsageError('--limit is 1 to 10000.', advice)
  const after = cursor === undefined ? {} : { after: streamOf(cursor, advice) }
  return withDatabase(values, async ({ lockstep }): Promise<Outcome> => {
    const options = { consumer, limit, ...after, ...(topic === undefined ? {} : { topic }) }
    const page = await lockstep.inbox.positions(options)
    const next = page.next && cursorOf(page.next)
    return {
      exitCode: 0,
      json: {
        ok: true,
        command: 'consumers positions',
        schema: lockstep.schema,
        consumer,
        positions: page.positions.map(({ topic: of, key, seq, id }) => ({ topic: of, key, seq, id: id ?? null })),
        next: next ?? null,
      },
      text: (terminal) => reportPositions(consumer, page, next, terminal),
    }
  })
}

/** As for the outbox: a consumer is a dispatcher of the same name. */
function onStream(verb: 'retry' | 'skip'): (call: Call, advice: string) => Promise<Outcome> {
  const work = operate(verb, 'consumers')
  return async ({ words: [, consumer, topic, key], values }, advice) => {
    if (!consumer) throw new UsageError('No consumer was named.', advice)
    const words = [verb, topic, key].filter((word) => word !== undefined)
    return work({ words, values: { ...values, dispatcher: consumer } }, advice)
  }
}

function cursorOf({ topic, key }: { readonly topic: string; readonly key: string }): string {
  return Buffer.from(JSON.stringify([topic, key])).toString('base64url')
}

function streamOf(cursor: string, advice: string): { readonly topic: string; readonly key: string } {
  let parts: unknown
  try {
    parts = JSON.parse(Buffer.from(cursor, 'base64url').toString())
  } catch {
    parts = undefined
  }
  const [topic, key] = Array.isArray(parts) ? (parts as unknown[]) : []
  if (typeof topic === 'string' && typeof key === 'string') return { topic, key }
  throw new UsageError('--cursor is not what a page before has printed.', advice)
}

function report(consumers: readonly ConsumerStatus[], terminal: Terminal): string {
  if (consumers.length === 0) return 'There is no consumer: none has run yet.'
  const { columns, paint } = terminal
  const head = ['CONSUMER', 'TOPICS', 'STREAMS', 'EVENTS', 'BEHIND', 'PARKED', '']
  const rows = consumers.map((each) => {
    const { name, dispatched, topics, streams, lagEvents, lagEstimated, lagMs, parkedStreams, ownerless } = each
    return [
      shorten(singleLine(name), NAME_WIDTH),
      dispatched ? shorten(singleLine(topics?.join(', ') ?? 'all'), NAME_WIDTH) : '-',
      streams === 10_000 ? '10000 or more' : String(streams),
      dispatched ? `${lagEstimated ? '~' : ''}${lagEvents}` : '-',
      lagEvents === 0 ? '-' : formatAge(lagMs),
      parkedStreams === 0 ? '-' : paint('yellow', String(parkedStreams)),
      dispatched
        ? ownerless === 0
          ? ''
          : paint('yellow', `${count(ownerless, 'shard')} without an owner`)
        : 'of a broker',
    ]
  })
  const waiting = consumers.flatMap((each) => each.waiting)
  const lists = [table([head.map((title) => paint('dim', title)), ...rows], columns)]
  if (waiting.length > 0) lists.push(waitingTable(waiting, terminal))
  const parked = consumers.reduce((sum, { parkedStreams }) => sum + parkedStreams, 0)
  const more = parked > waiting.length ? ' All of them: pg-lockstep outbox parked.' : ''
  const verdict = `${count(consumers.length, 'consumer')}, ${parked === 0 ? 'no stream waits' : `${count(parked, 'stream')} parked`}.${more}`
  return [...lists, paint('bold', verdict)].join('\n\n')
}

function waitingTable(waiting: ConsumerStatus['waiting'], { columns, paint }: Terminal): string {
  const head = ['CONSUMER', 'TOPIC', 'KEY', 'STATE', 'ATTEMPTS', 'HEAD', 'REASON'].map((title) => paint('dim', title))
  const rows = waiting.map(({ dispatcher, topic, key, state, attempts, head: seq, reason }) => [
    singleLine(dispatcher),
    shorten(singleLine(topic), NAME_WIDTH),
    shorten(singleLine(key), NAME_WIDTH),
    state === 'parked' ? state : paint(state === 'blocked' ? 'red' : 'yellow', state),
    String(attempts),
    seq === undefined ? '-' : `#${seq}`,
    singleLine(reason ?? ''),
  ])
  return table([head, ...rows], columns)
}

function reportPositions(
  consumer: string,
  { positions: page }: PositionPage,
  next: string | undefined,
  { columns, paint }: Terminal,
): string {
  if (page.length === 0) return `${singleLine(consumer)} has no position here.`
  const head = ['TOPIC', 'KEY', 'LAST', 'ID'].map((title) => paint('dim', title))
  const rows = page.map(({ topic, key, seq, id }) => [
    shorten(singleLine(topic), NAME_WIDTH),
    shorten(singleLine(key), NAME_WIDTH),
    `#${seq}`,
    id ?? '-',
  ])
  const more = next === undefined ? '' : ` More: --cursor ${next}`
  return `${table([head, ...rows], columns)}\n\n${paint('bold', `${count(page.length, 'stream')}.${more}`)}`
}
