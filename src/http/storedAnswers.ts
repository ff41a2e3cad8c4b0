import { InvalidOptionError } from '../errors.ts'
import type { Key } from '../locks/index.ts'
import { quoteIdentifier } from '../postgres/index.ts'
import { outsideTransactions, readText, type Transaction } from '../transactions/index.ts'
import type { Answer, Header, HttpLockstep } from './guard.ts'
import { cleanUp, keep, look, type LookRow } from './http.sql.ts'
import type { IdempotencyPlan } from './idempotencyOptions.ts'
import { problem } from './problem.ts'

/** One request with its key. */
export interface Entry {
  readonly scope: string
  readonly key: string
  /** Hexadecimal. */
  readonly fingerprint: string
  /** What its key is locked and leased by. */
  readonly lockKey: Key
}

/** After each batch of this many stored answers, expired ones are deleted: ten times as many as were added. */
const CLEAN_EVERY = 100
const CLEAN_LIMIT = 1000

/** The table of answers. */
export class StoredAnswers {
  readonly #lockstep: HttpLockstep
  readonly #plan: IdempotencyPlan
  readonly #look: string
  readonly #keep: string
  readonly #cleanUp: string
  // Not from 0: processes that live shortly clean up too.
  #kept = Math.floor(Math.random() * CLEAN_EVERY)
  #cleaning = false

  constructor(lockstep: HttpLockstep, plan: IdempotencyPlan) {
    const schema = quoteIdentifier(lockstep.schema)
    this.#lockstep = lockstep
    this.#plan = plan
    this.#look = look(schema)
    this.#keep = keep(schema)
    this.#cleanUp = cleanUp(schema, CLEAN_LIMIT)
  }

  /** What there is to answer without running the handler. `reserved`: by the caller itself. */
  async look(tx: Transaction, entry: Entry, reserved: boolean): Promise<Answer | undefined> {
    const { rows } = await readText(tx, this.#look, [entry.scope, entry.key, entry.lockKey])
    const row = rows[0] as unknown as LookRow
    if (row.fingerprint === null) return row.left === null || reserved ? undefined : running(Number(row.left))
    return row.fingerprint === entry.fingerprint ? replay(row) : keyReused()
  }

  /** As `look`, for a caller that another one blocked. */
  lookPlainly(entry: Entry): Promise<Answer | undefined> {
    return this.#lockstep.transaction({}, (tx) => this.look(tx, entry, true))
  }

  /** False where there is an answer already. */
  async keep(tx: Transaction, entry: Entry, answer: Answer): Promise<boolean> {
    const chosen = answer.headers.filter(([name]) => this.#plan.headers.has(name))
    const values = [
      entry.scope,
      entry.key,
      entry.fingerprint,
      String(answer.status),
      JSON.stringify(chosen),
      Buffer.from(answer.body).toString('base64'),
      String(this.#plan.retainMs),
    ]
    const { rows } = await readText(tx, this.#keep, values)
    return rows.length > 0
  }

  /** An answer was committed: now and then, in the background, room is made. */
  noteKept(): void {
    if (++this.#kept % CLEAN_EVERY !== 0 || this.#cleaning) return
    this.#cleaning = true
    outsideTransactions(() => void this.#cleanUpSoon())
  }

  async #cleanUpSoon(): Promise<void> {
    // Another time, if not now.
    await this.#lockstep.transaction({ retry: false }, (tx) => readText(tx, this.#cleanUp)).catch(() => undefined)
    this.#cleaning = false
  }
}

function replay({ status, headers, body }: LookRow): Answer {
  const stored = JSON.parse(headers ?? '[]') as Header[]
  return {
    status: Number(status),
    headers: [...stored, ['idempotency-replayed', 'true']],
    body: Buffer.from(body ?? '', 'base64'),
  }
}

export function isReplay({ headers }: Answer): boolean {
  return headers.some(([name]) => name === 'idempotency-replayed')
}

export function running(retryAfterMs: number): Answer {
  return problem('running', 'Send the request again later with the same key to get its answer.', { retryAfterMs })
}

function keyReused(): Answer {
  return problem('key-reused', 'Method, path or body differ from those of the first request. Use a new key.')
}

/** The handler ended, and there is nothing that could be stored. */
export function noAnswer(what: string): InvalidOptionError {
  return new InvalidOptionError(what, {
    advice: 'An idempotent handler answers with a whole body before its promise ends: it is stored before it is sent.',
  })
}
