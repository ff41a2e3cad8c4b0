import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import {
  type Connection,
  type Driver,
  type OwnValue,
  quoteIdentifier,
  refuseForeignOwner,
  type SilenceWatch,
  withConnection,
} from '../postgres/index.ts'
import { checkMode, LOCKED, longestRule, type RolloutMode, type RolloutRule } from './rollout.ts'
import { rolloutRules, setRolloutRule, unsetRolloutRule } from './rollout.sql.ts'

/** A rule as the database has it. */
export interface StoredRolloutRule extends RolloutRule {
  readonly reason: string
  readonly changedAt: Date
}

/** What `rollout.set()` takes beside prefix and mode. */
export interface SetRolloutOptions {
  /** Why; shown with the rule. */
  readonly reason?: string
}

const SET_OPTIONS: OptionNames<SetRolloutOptions> = { reason: true }

/** Rules older than this are read again in the background. */
const YOUNG_MS = 1000
/** Rules older than this are not used: a process that was quiet for an hour must not go on with those of an hour ago. */
const MAX_AGE_MS = 3000
const MAX_PREFIX_BYTES = 512

/** The rules in the database, read when they are used and are no longer young: no polling while nobody locks. */
export class RolloutInDatabase {
  readonly #driver: Driver
  readonly #schema: string
  readonly #silence: SilenceWatch
  readonly #name: string
  #trusted = false
  #rules: readonly StoredRolloutRule[] = []
  #readAt = -Infinity
  #reading: Promise<void> | undefined

  /** @internal */
  constructor(driver: Driver, schema: string, silence: SilenceWatch) {
    this.#driver = driver
    this.#schema = quoteIdentifier(schema)
    this.#name = schema
    this.#silence = silence
  }

  /** @internal */
  ruleFor(key: string): RolloutRule {
    return longestRule(this.#rules, key) ?? LOCKED
  }

  /** @internal */
  freshen(): Promise<void> | undefined {
    const ageMs = performance.now() - this.#readAt
    if (ageMs < YOUNG_MS) return undefined
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined))
    if (ageMs > MAX_AGE_MS) return this.#reading
    this.#reading.catch(() => undefined)
    return undefined
  }

  /** All rules, as they are now. */
  async list(): Promise<readonly StoredRolloutRule[]> {
    await this.#read()
    return this.#rules
  }

  /** Sets the mode of the keys that begin with the prefix. */
  async set(prefix: string, mode: RolloutMode, options: SetRolloutOptions = {}): Promise<void> {
    checkOptions('rollout.set()', options, SET_OPTIONS)
    const { reason = '' } = options
    const checked = checkMode(mode)
    if (typeof checked !== 'string' && !Number.isInteger(checked.percent)) {
      throw new InvalidOptionError(`${checked.percent} is no whole percentage.`, { advice: 'Use 0 to 100.' })
    }
    const values = [
      checkPrefix(prefix),
      typeof checked === 'string' ? checked : 'percent',
      typeof checked === 'string' ? null : String(checked.percent),
      reason,
    ]
    await this.#change(setRolloutRule(this.#schema), values)
  }

  /** Removes the rule of exactly this prefix. True if there was one. */
  async unset(prefix: string): Promise<boolean> {
    return (await this.#change(unsetRolloutRule(this.#schema), [checkPrefix(prefix)])) > 0
  }

  /** @internal */
  async switchBack(prefix: string, reason: string): Promise<void> {
    await this.set(prefix, 'observe', { reason })
    await this.#read()
  }

  async #change(text: string, values: readonly OwnValue[]): Promise<number> {
    const { rowCount } = await this.#ask(text, values)
    this.#readAt = -Infinity
    return rowCount
  }

  /** Rules are read before anything else has looked whose schema it is. */
  async #ask(text: string, values?: readonly OwnValue[]): ReturnType<Connection['read']> {
    const work = async (connection: Connection): ReturnType<Connection['read']> => {
      if (!this.#trusted) await refuseForeignOwner(connection, this.#name)
      this.#trusted = true
      return connection.read(text, values)
    }
    return withConnection(this.#driver, work, this.#silence)
  }

  async #read(): Promise<void> {
    const askedAt = performance.now()
    const text = rolloutRules(this.#schema)
    const { rows } = await this.#ask(text)
    this.#rules = (rows as unknown as StoredRow[]).map((row) => ({
      prefix: row.prefix,
      mode: row.mode === 'percent' ? { percent: Number(row.percent) } : (row.mode as 'off' | 'observe' | 'on'),
      reason: row.reason,
      changedAt: new Date(row.changed),
    }))
    this.#readAt = askedAt
  }
}

interface StoredRow {
  readonly prefix: string
  readonly mode: string
  readonly percent: string | null
  readonly reason: string
  readonly changed: string
}

function checkPrefix(prefix: unknown): string {
  if (typeof prefix === 'string' && Buffer.byteLength(prefix) <= MAX_PREFIX_BYTES && !prefix.includes('\0'))
    return prefix
  throw new InvalidOptionError('The prefix is no text, or too long.', {
    advice: "Use the beginning of keys, for example 'Transfer:', or '' for all keys.",
  })
}
