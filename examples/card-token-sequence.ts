/**
 * A counter without gaps: the numbers of card tokens.
 *
 * The idea: auditors want 1, 2, 3, … without a hole. A sequence of PostgreSQL leaves one for each transaction that rolls back. The highest number plus one
 * leaves none, but two callers compute the same. One key for the whole counter, `CardTokenSequence:global`, lets one caller at a time compute and
 * insert; a caller that rolls back has used no number.
 */
import type pg from 'pg'
import { key, Lockstep, type Transaction } from 'pg-lockstep'

export interface CardTokenResult {
  /** How many callers asked, and how many of them failed after they had their number. */
  readonly callers: number
  readonly failed: number
  /** The numbers that were given out under the lock, in ascending order. */
  readonly withLock: readonly number[]
  /** The same callers without the lock. */
  readonly withoutLock: readonly number[]
  /** The same callers with a sequence of PostgreSQL. */
  readonly withSequence: readonly number[]
}

const CALLERS = 24

export async function run(pool: pg.Pool): Promise<CardTokenResult> {
  const lockstep = new Lockstep(pool)
  await lockstep.migrate()
  await pool.query(`
    CREATE SEQUENCE card_token_numbers;
    CREATE TABLE card_tokens (number integer NOT NULL, card text NOT NULL, way text NOT NULL);
    CREATE INDEX ON card_tokens (way, number)`)

  const highestPlusOne = async (tx: Transaction, way: string): Promise<number> => {
    const text = 'SELECT coalesce(max(number), 0) + 1 AS next FROM card_tokens WHERE way = $1'
    return (await tx.query<{ next: number }>(text, [way])).rows[0]?.next ?? 1
  }
  const ofSequence = async (tx: Transaction): Promise<number> =>
    (await tx.query<{ next: number }>("SELECT nextval('card_token_numbers')::integer AS next")).rows[0]?.next ?? 1

  /** Issues a token. Every third caller fails after it has its number: the card is refused. */
  async function issue(tx: Transaction, caller: number, way: string): Promise<void> {
    const number = way === 'sequence' ? await ofSequence(tx) : await highestPlusOne(tx, way)
    // What a real program does here: ask the vault.
    await tx.query('SELECT pg_sleep(0.005)')
    await tx.query('INSERT INTO card_tokens VALUES ($1, $2, $3)', [number, `card ${caller}`, way])
    if (caller % 3 === 0) throw new Error('the card was refused')
  }

  async function issueAll(way: string): Promise<number[]> {
    // One key for all cards: there is one counter.
    const options = way === 'lock' ? { lock: key`CardTokenSequence:${'global'}` } : {}
    const callers = Array.from({ length: CALLERS }, (_, caller) =>
      lockstep.transaction(options, (tx) => issue(tx, caller, way)).catch(() => undefined),
    )
    await Promise.all(callers)
    const text = 'SELECT number FROM card_tokens WHERE way = $1 ORDER BY number'
    return (await pool.query<{ number: number }>(text, [way])).rows.map(({ number }) => number)
  }

  const [withLock, withoutLock, withSequence] = [
    await issueAll('lock'),
    await issueAll('none'),
    await issueAll('sequence'),
  ]
  await lockstep.close()
  return { callers: CALLERS, failed: CALLERS / 3, withLock, withoutLock, withSequence }
}
