import type { Stream } from '../events/index.ts'
import { quoteLiteral, type StatementResult } from '../postgres/index.ts'

/** Reads the last numbers of streams whose locks are held. */
export function lastNumbers(schema: string, streams: readonly Stream[]): string {
  const ids = streams.map(({ topic, key }) => `${schema}.outbox_stream(${quoteLiteral(topic)}, ${quoteLiteral(key)})`)
  return `SELECT array_to_string(${schema}.outbox_last(ARRAY[${ids.join(', ')}]), ',') AS numbers;`
}

/** What `lastNumbers` found, in the order of the streams. Undefined where it was not sent. */
export function numbersIn(results: readonly StatementResult[]): number[] | undefined {
  const found = results.find((result) => result.rows[0] !== undefined && 'numbers' in result.rows[0])
  return found && String(found.rows[0]?.['numbers']).split(',').map(Number)
}
