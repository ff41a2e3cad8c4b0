import type { Lockstep, ParkedStream, Stream } from '../index.ts'
import type { Call, Outcome } from './command.ts'
import { forJson } from './forJson.ts'
import { parseNumber } from './parseValues.ts'
import { table } from './table.ts'
import type { Terminal } from './terminal.ts'
import { UsageError } from './usageError.ts'
import { userName } from './userName.ts'
import { withDatabase } from './withDatabase.ts'
import { count, formatAge, formatTime, shorten, singleLine } from './formatting.ts'

const NAME_WIDTH = 40

/** The streams that wait. */
export function parked({ values }: Call): Promise<Outcome> {
  const { dispatcher } = values
  const limit = parseNumber('limit', values.limit ?? '100')
  if (limit === 0) throw new UsageError('--limit cannot be 0.', 'Use a whole number from 1 on.')
  return withDatabase(values, async ({ lockstep }): Promise<Outcome> => {
    const streams = await lockstep.outbox.parked({ limit, ...(dispatcher === undefined ? {} : { dispatcher }) })
    const at = new Date()
    return {
      exitCode: 0,
      json: {
        ok: true,
        command: 'outbox parked',
        schema: lockstep.schema,
        at: at.toISOString(),
        streams: forJson({ streams }).streams,
      },
      text: (terminal) => report(streams, { at, dispatcher, limit }, terminal),
    }
  })
}

const ALL = 1_000_000

type OperatorVerb = 'retry' | 'skip' | 'pause' | 'resume'

const DONE: Readonly<Record<OperatorVerb, (stream: string, dispatcher: string) => string>> = {
  retry: (stream, dispatcher) => `${stream} is due: the dispatcher ${dispatcher} tries it again now.`,
  skip: (stream, dispatcher) =>
    `The event at the head of ${stream} was given up: the dispatcher ${dispatcher} sends a tombstone in its place, and the stream goes on.`,
  pause: (stream, dispatcher) =>
    `${stream} is paused: the dispatcher ${dispatcher} keeps its events back, in order, until it is resumed.`,
  resume: (stream, dispatcher) => `${stream} goes on: the dispatcher ${dispatcher} sends what it has kept back.`,
}

/** What an operator says about one stream. */
export function operate(
  verb: OperatorVerb,
  noun: 'outbox' | 'consumers' = 'outbox',
): (call: Call, advice: string) => Promise<Outcome> {
  return (call, advice) => {
    const stream = streamOf(call, advice)
    const { dispatcher = 'default', reason } = call.values
    if (verb === 'skip' && reason === undefined) throw new UsageError('--reason is missing.', advice)
    return withDatabase(call.values, async ({ lockstep }): Promise<Outcome> => {
      const { outbox, schema } = lockstep
      const whose = { ...stream, dispatcher }
      // Of a stream that does not wait there is no head, and the library says so.
      const head = verb === 'skip' ? await headOf(outbox, whose) : undefined
      const seq = verb === 'skip' ? (head?.head ?? 1) : undefined
      const audited = { by: userName(), ...(reason === undefined ? {} : { reason }) }
      if (verb !== 'skip') await outbox[verb](whose, audited)
      else await outbox.skip({ ...whose, seq: seq ?? 1, headId: head?.headId }, { reason: '', ...audited })
      const which = seq === undefined ? {} : { seq }
      return {
        exitCode: 0,
        json: { ok: true, command: `${noun} ${verb}`, schema, ...whose, ...which, reason: reason ?? null },
        text: () => DONE[verb](nameOf(stream), singleLine(dispatcher)),
      }
    })
  }
}

/** A stream that waits, with the event at its head. */
async function headOf(
  outbox: Lockstep['outbox'],
  { topic, key, dispatcher }: { topic: string; key: string; dispatcher: string },
): Promise<ParkedStream | undefined> {
  const streams = await outbox.parked({ dispatcher, limit: ALL })
  return streams.find((each) => each.topic === topic && each.key === key)
}

/** Takes the payloads of a stream away. */
export function erase(call: Call, advice: string): Promise<Outcome> {
  const stream = streamOf(call, advice)
  const { reason } = call.values
  if (reason === undefined) throw new UsageError('--reason is missing.', advice)
  return withDatabase(call.values, async ({ lockstep }): Promise<Outcome> => {
    const { erased } = await lockstep.outbox.erase(stream, { reason, by: userName() })
    const told =
      erased === 0
        ? `No retained event of ${nameOf(stream)} had a payload. Its parked events have none any more, either.`
        : `The payloads of ${count(erased, 'event')} of ${nameOf(stream)} are gone. What is not delivered yet goes out as a tombstone.`
    return {
      exitCode: 0,
      json: { ok: true, command: 'outbox erase', schema: lockstep.schema, ...stream, reason, erased },
      text: () => told,
    }
  })
}

function streamOf({ words: [, topic, key] }: Call, advice: string): Stream {
  if (!topic || !key) throw new UsageError('No stream was named.', `${advice} A stream is a topic and a key.`)
  return { topic, key }
}

function nameOf({ topic, key }: Stream): string {
  return `${singleLine(topic)}/${singleLine(key)}`
}

interface Asked {
  readonly at: Date
  readonly dispatcher: string | undefined
  readonly limit: number
}

function report(streams: readonly ParkedStream[], { at, dispatcher, limit }: Asked, terminal: Terminal): string {
  if (streams.length === 0) return `No stream${dispatcher === undefined ? '' : ` of ${singleLine(dispatcher)}`} waits.`
  const { columns, paint } = terminal
  const head = ['DISPATCHER', 'TOPIC', 'KEY', 'STATE', 'ATTEMPTS', 'EVENTS', 'HEAD', 'NEXT ATTEMPT', 'REASON']
  const rows = streams.map((stream) => [
    singleLine(stream.dispatcher),
    shorten(singleLine(stream.topic), NAME_WIDTH),
    shorten(singleLine(stream.key), NAME_WIDTH),
    stateOf(stream, terminal),
    String(stream.attempts),
    String(stream.events),
    stream.head === undefined ? '-' : `#${stream.head}`,
    nextOf(stream, at),
    singleLine(stream.reason ?? ''),
  ])
  const events = streams.reduce((sum, each) => sum + each.events, 0)
  const more = streams.length < limit ? '' : ' There may be more: see --limit.'
  const verdict = `${count(streams.length, 'stream')}, ${count(events, 'event')}.${more}`
  return `${table([head.map((title) => paint('dim', title)), ...rows], columns)}\n\n${paint('bold', verdict)}`
}

function stateOf({ state }: ParkedStream, { paint }: Terminal): string {
  if (state === 'parked' || state === 'held') return state
  return paint(state === 'blocked' ? 'red' : 'yellow', state)
}

/** A stream that is not tried by itself waits for an operator. */
function nextOf({ state, nextAttemptAt }: ParkedStream, at: Date): string {
  if (nextAttemptAt === undefined) return '-'
  if (state === 'held') return `held until ${formatTime(nextAttemptAt)}`
  const left = nextAttemptAt.getTime() - at.getTime()
  return left <= 0 ? 'now' : `in ${formatAge(left)}`
}
