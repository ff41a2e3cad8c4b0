import type { EventPage, EventsOptions, StoredEvent } from '../index.ts'
import type { Call, OptionName, Outcome } from './command.ts'
import { forJson } from './forJson.ts'
import { formatSize, formatTime, shorten, singleLine } from './formatting.ts'
import { parseDuration, parseNumber, parsePosition } from './parseValues.ts'
import { table } from './table.ts'
import type { Terminal } from './terminal.ts'
import { UsageError } from './usageError.ts'
import { withDatabase } from './withDatabase.ts'

const NAME_WIDTH = 40
const PAYLOAD_WIDTH = 80

/** Retained events, one page of them. */
export function events({ values }: Call, advice: string): Promise<Outcome> {
  const { topic, key, cursor } = values
  if (key !== undefined && topic === undefined) throw new UsageError('--key needs --topic.', advice)
  if (key === undefined && (values['from-seq'] ?? values['to-seq']) !== undefined) {
    throw new UsageError('--from-seq and --to-seq are for one stream.', `${advice} Name it with --topic and --key.`)
  }
  const number = (name: 'from-seq' | 'to-seq'): number | undefined =>
    values[name] === undefined ? undefined : parsePosition(name, values[name])
  const limit = parseNumber('limit', values.limit ?? '100')
  if (limit === 0 || limit > 10_000) throw new UsageError('--limit is 1 to 10000.', advice)
  const [fromSeq, toSeq] = [number('from-seq'), number('to-seq')]
  const [from, to] = [timeOf('since', values.since), timeOf('until', values.until)]
  const payloads = values.payloads !== undefined
  const options: EventsOptions = {
    limit,
    payloads,
    newestFirst: values.newest !== undefined,
    ...(topic === undefined ? {} : { topic }),
    ...(key === undefined ? {} : { key }),
    ...(fromSeq === undefined ? {} : { fromSeq }),
    ...(toSeq === undefined ? {} : { toSeq }),
    ...(from === undefined ? {} : { from }),
    ...(to === undefined ? {} : { to }),
    ...(cursor === undefined ? {} : { cursor }),
  }
  return withDatabase(values, async ({ lockstep }): Promise<Outcome> => {
    const page = await lockstep.outbox.events(options)
    return {
      exitCode: 0,
      json: {
        ok: true,
        command: 'outbox events',
        schema: lockstep.schema,
        events: page.events.map((event) => forJson(printable(event))),
        next: page.next ?? null,
        scanned: page.scanned,
      },
      text: (terminal) => report(page, payloads, terminal),
    }
  })
}

/** A duration before now, or a date. */
function timeOf(option: OptionName, text: string | undefined): Date | undefined {
  if (text === undefined) return undefined
  if (/^\d+[smhd]$/.test(text)) return new Date(Date.now() - parseDuration(option, text))
  const at = /^\d{4}-\d\d-\d\d/.test(text) ? new Date(text) : new Date(Number.NaN)
  if (!Number.isNaN(at.getTime())) return at
  throw new UsageError(
    `--${option} cannot be ${JSON.stringify(text)}.`,
    'Use a time such as 2026-11-15T14:00:00Z, or how long ago: 30s, 15m, 12h or 7d.',
  )
}

/** Bytes as base64, as a replay prints them. */
function printable({ payload, ...event }: StoredEvent): object {
  if (payload instanceof Uint8Array) return { ...event, bytes: Buffer.from(payload).toString('base64') }
  return payload === undefined ? event : { ...event, payload }
}

function report({ events: found, next, scanned }: EventPage, payloads: boolean, { columns, paint }: Terminal): string {
  const more = next === undefined ? 'That is all.' : `There may be more: --cursor ${next}`
  const verdict = `${found.length} of ${scanned} positions that were looked at. ${more}`
  if (found.length === 0) return verdict
  const head = ['POSITION', 'TOPIC', 'KEY', 'NUMBER', 'ENQUEUED', 'SIZE', ...(payloads ? ['PAYLOAD'] : [])]
  const rows = found.map((event) => [
    String(event.position),
    shorten(singleLine(event.topic), NAME_WIDTH),
    shorten(singleLine(event.key), NAME_WIDTH),
    `#${event.seq}`,
    formatTime(event.enqueuedAt),
    event.erased ? 'erased' : formatSize(event.storedBytes),
    ...(payloads ? [payloadOf(event)] : []),
  ])
  return `${table([head.map((title) => paint('dim', title)), ...rows], columns)}\n\n${paint('bold', verdict)}`
}

function payloadOf({ payload }: StoredEvent): string {
  if (payload === undefined) return ''
  const text = payload instanceof Uint8Array ? Buffer.from(payload).toString('hex') : JSON.stringify(payload)
  return shorten(singleLine(text), PAYLOAD_WIDTH)
}
