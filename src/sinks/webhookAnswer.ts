import type { Delivery, OutboxEvent } from '../outbox/index.ts'
import { PrivateAddressError } from './publicAddress.ts'
import { type HttpAnswer, plain } from './webhookRequest.ts'
import { nameOf } from './reasons.ts'

/** Answers that say "not now": the same event may be taken later. */
const NOT_NOW: ReadonlySet<number> = new Set([408, 425, 429])

/** What an answer means for the event. */
export function readAnswer(event: OutboxEvent, url: URL, answer: HttpAnswer, nowMs: number): Delivery {
  const { status, statusText, text } = answer
  if (status >= 200 && status < 300) return 'sent'
  const said = `${url.host} answered ${status} ${statusText}`.trimEnd()
  const words = text === '' ? '' : `: ${text}`
  if (status >= 400 && status < 500 && !NOT_NOW.has(status)) return { refused: `${said} to ${nameOf(event)}${words}` }
  if (status >= 300 && status < 400) {
    const where = answer.location === undefined ? '' : `, to ${plain(answer.location.slice(0, 200))},`
    return {
      unknown: `${said}${where} to ${nameOf(event)}: only 307 and 308 to the same origin are followed. Use the URL at which it takes events.`,
    }
  }
  const retryAfterMs = retryAfter(answer, nowMs)
  return { unknown: `${said} to ${nameOf(event)}${words}`, ...(retryAfterMs > 0 ? { retryAfterMs } : {}) }
}

/** What a failure means: the network's are unknown, an address that is not allowed is refused. */
export function readFailure(event: OutboxEvent, url: URL, cause: unknown): Delivery {
  const reason = cause instanceof Error ? cause.message || (cause as NodeJS.ErrnoException).code : String(cause)
  if (cause instanceof PrivateAddressError) {
    return {
      refused: `${nameOf(event)} was not sent: ${cause.message}. If it is meant to go there, set allowPrivateAddresses.`,
      cause,
    }
  }
  return { unknown: `${url.host} did not answer to ${nameOf(event)}: ${reason}`, cause }
}

/** `Retry-After`: seconds, or a time by the receiver's own clock. */
function retryAfter({ retryAfter: value, date }: HttpAnswer, nowMs: number): number {
  if (value === undefined) return 0
  if (/^\d{1,9}$/.test(value.trim())) return Number(value) * 1000
  // A time has letters. Of what has none, Date.parse() makes years: of -3600 the year 3600.
  const until = /[a-z]/i.test(value) ? Date.parse(value) : Number.NaN
  const from = date === undefined ? nowMs : Date.parse(date)
  return Number.isNaN(until) ? 0 : Math.max(0, until - (Number.isNaN(from) ? nowMs : from))
}
