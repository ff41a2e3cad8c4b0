import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import { checkKey, type Key } from '../locks/index.ts'
import {
  type Connection,
  type Driver,
  type OwnValue,
  quoteIdentifier,
  refuseForeignOwner,
  type SilenceWatch,
  withConnection,
} from '../postgres/index.ts'
import {
  checkMode,
  checkSwitchable,
  LOCKED,
  longestRule,
  type RolloutMode,
  type RolloutRule,
  type SeenRule,
} from './rollout.ts'
import { rolloutRules, setRolloutRule, switchRolloutRuleBack, unsetRolloutRule } from './rollout.sql.ts'

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

/** What `rollout.reportDuplicate()` takes beside the key. */
export interface ReportDuplicateOptions {
  /** What was found, for the event. */
  readonly detail?: string
}

const REPORT_OPTIONS: OptionNames<ReportDuplicateOptions> = { detail: true }

const SET_OPTIONS: OptionNames<SetRolloutOptions> = { reason: true }

/** Rules older than this are read again in the background. */
const YOUNG_MS = 1000
/** Rules older than this are not used: a process that was quiet for an hour must not continue with those of an hour ago. */
const MAX_AGE_MS = 3000
const MAX_PREFIX_BYTES = 512

/** The rules in the database, read when they are used and are no longer young: no polling while no caller locks. */
export class RolloutInDatabase {
  readonly #driver: Driver
  readonly #schema: string
  readonly #silence: SilenceWatch
  readonly #name: string
  #trusted = false
  #rules: readonly (StoredRolloutRule & SeenRule)[] = []
  #onDuplicate: ((key: Key, detail: string) => void) | undefined
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
  ruleFor(key: string): SeenRule {
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
    return this.#rules.map(({ prefix, mode, reason, changedAt }) => ({ prefix, mode, reason, changedAt }))
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

  /**
   * Reports that something is there twice which the key is there to prevent: it is counted, and can pull the trigger `duplicates`. `once()` and
   * `onceExternal()` report by themselves what a unique index refused to have twice.
   *
   * @example
   * for (const { symbol } of await findDoubles()) lockstep.rollout.reportDuplicate(key`Position:${symbol}`, { detail: 'two open positions' })
   */
  reportDuplicate(key: Key, options: ReportDuplicateOptions = {}): void {
    checkOptions('rollout.reportDuplicate()', options, REPORT_OPTIONS)
    const { detail = '' } = options
    if (typeof detail !== 'string')
      throw new InvalidOptionError('`detail` is no text.', { advice: 'Say in a few words what was found.' })
    this.#onDuplicate?.(checkKey(key), detail)
  }

  /** @internal */
  hearDuplicates(listener: (key: Key, detail: string) => void): void {
    this.#onDuplicate = listener
  }

  /** @internal */
  async switchBack(prefix: string, seen: SeenRule, reason: string): Promise<boolean> {
    // Where the rule is for more keys than the prefix, the prefix had no rule.
    const version = seen.prefix === prefix ? (seen.version ?? null) : null
    const { rows } = await this.#ask(switchRolloutRuleBack(this.#schema), [checkPrefix(prefix), version, reason])
    this.#readAt = -Infinity
    // What was switched is switched, also where it cannot be read again just now.
    await this.#read().catch(() => undefined)
    return rows[0]?.['switched'] === 'true'
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
      version: row.version,
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
  readonly version: string
}

function checkPrefix(prefix: unknown): string {
  if (typeof prefix === 'string' && Buffer.byteLength(prefix) <= MAX_PREFIX_BYTES && !prefix.includes('\0'))
    return checkSwitchable(prefix)
  throw new InvalidOptionError('The prefix is no text, or too long.', {
    advice: "Use the beginning of keys, for example 'Transfer:', or '' for all keys.",
  })
}
