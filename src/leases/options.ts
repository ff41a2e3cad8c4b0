import { hostname } from 'node:os'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import { checkKey, type Key } from '../locks/index.ts'
import { LONGEST_TIMER_MS } from '../postgres/index.ts'
import { checkWaitMs } from '../transactions/index.ts'

/** What an acquirer may say. */
export interface LeaseOptions {
  /** How long the lease lasts without a heartbeat. After a crash, the next caller gets it after this time. Default 30,000. */
  readonly ttlMs?: number
  /**
   * How long to wait for it. `0` tries once, `false` waits without limit. Default 0. A transaction waits 30 seconds by default, because it
   * holds its locks for milliseconds. A lease can be held for hours, and most callers then do something else.
   */
  readonly waitMs?: number | false
  /** Ends the wait. It does not end a lease that is held. */
  readonly signal?: AbortSignal
  /** How many callers can hold it at once. All callers of one key must use the same number. Default 1. */
  readonly permits?: number
  /** A name that others see. Default: the host name and the process id. */
  readonly holder?: string
  /** Shows others who holds it and for what. Stored as JSON, at most 4,096 bytes. */
  readonly metadata?: Readonly<Record<string, unknown>>
  /** Protects against a stuck holder: after this time the lease is not renewed any more, and its signal is aborted. Default: no limit. */
  readonly maxHoldMs?: number
  /** Whether its end is written to the history. A lease that was taken away always is. Default true. */
  readonly history?: boolean
}

export const LEASE_OPTIONS: OptionNames<LeaseOptions> = {
  ttlMs: true,
  waitMs: true,
  signal: true,
  permits: true,
  holder: true,
  metadata: true,
  maxHoldMs: true,
  history: true,
}

/** The checked options. */
export interface LeasePlan {
  readonly ttlMs: number
  readonly waitMs: number | false
  readonly signal: AbortSignal | undefined
  readonly permits: number
  readonly holder: string
  readonly metadata: string | undefined
  readonly maxHoldMs: number | undefined
  readonly history: boolean
}

const DEFAULT_TTL_MS = 30_000
/** Below this, a garbage collection could cost the lease. */
const MIN_TTL_MS = 200
const MAX_TTL_MS = 24 * 60 * 60 * 1000
const MAX_PERMITS = 1000
const MAX_HOLDER_BYTES = 255
const MAX_METADATA_BYTES = 4096

/** The names of a dispatcher's leases: after a failover they do not wait as others do. */
const DISPATCHERS = /^Outbox:[^]*:(?:member|shard|drain):/

/** A key that a caller can take a lease on. */
export function checkLeaseKey(key: Key): Key {
  if (!DISPATCHERS.test(checkKey(key))) return key
  throw new InvalidOptionError(`${key} is the name of a lease of an outbox dispatcher.`, {
    advice: 'Use another name: Outbox:...:member:..., Outbox:...:shard:... and Outbox:...:drain:... are reserved.',
    keys: [key],
  })
}

export function planLease(options: LeaseOptions, where = 'a lease'): LeasePlan {
  checkOptions(where, options, LEASE_OPTIONS)
  if (options.signal !== undefined && !(options.signal instanceof AbortSignal)) {
    throw new InvalidOptionError('`signal` is not an AbortSignal.', { advice: 'Pass `controller.signal`.' })
  }
  return {
    ttlMs: checkWhole('ttlMs', options.ttlMs ?? DEFAULT_TTL_MS, MIN_TTL_MS, MAX_TTL_MS),
    waitMs: checkWaitMs(options.waitMs, 0),
    signal: options.signal,
    permits: checkWhole('permits', options.permits ?? 1, 1, MAX_PERMITS),
    holder: checkText('holder', options.holder ?? defaultHolder(), MAX_HOLDER_BYTES),
    metadata: options.metadata === undefined ? undefined : checkMetadata(options.metadata),
    maxHoldMs:
      options.maxHoldMs === undefined ? undefined : checkWhole('maxHoldMs', options.maxHoldMs, 1, LONGEST_TIMER_MS),
    history: checkHistory(options.history),
  }
}

export function defaultHolder(): string {
  return `${hostname()}:${process.pid}`
}

function checkHistory(history: unknown = true): boolean {
  if (typeof history === 'boolean') return history
  throw new InvalidOptionError(`history is ${String(history)}.`, { advice: 'Use true or false.' })
}

function checkWhole(name: string, value: unknown, least: number, most: number): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most) return value
  throw new InvalidOptionError(`${name} is ${String(value)}.`, {
    advice: `Use a whole number from ${least} to ${most}.`,
  })
}

/** A text that PostgreSQL can store. */
export function checkText(name: string, text: unknown, maxBytes: number): string {
  const fits =
    typeof text === 'string' &&
    text !== '' &&
    Buffer.byteLength(text) <= maxBytes &&
    !text.includes('\0') &&
    text.isWellFormed()
  if (fits) return text
  throw new InvalidOptionError(`\`${name}\` is no text, empty, or too long.`, { advice: `Use 1 to ${maxBytes} bytes.` })
}

function checkMetadata(metadata: unknown): string {
  let text: string | undefined
  try {
    text = JSON.stringify(metadata)
  } catch {
    // Below.
  }
  const fits =
    text !== undefined && Buffer.byteLength(text) <= MAX_METADATA_BYTES && !/\\u(?:0000|d[89a-f])/i.test(text)
  if (fits && typeof metadata === 'object' && metadata !== null) return text as string
  throw new InvalidOptionError('`metadata` is no object that JSON can hold, or too large.', {
    advice: `Use a plain object of at most ${MAX_METADATA_BYTES} bytes as JSON.`,
  })
}
