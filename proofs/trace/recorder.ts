import type pg from 'pg'
import type { Entry } from '../history.ts'
import type { Question } from '../scenarios/broker.ts'
import { type Batch, type CommittedEvent, type Cursor, readSnapshot, type Tick, type Trace } from './trace.ts'
import { CRASHES, CURSORS, EVENTS, RECORD, TICKS, WAITING } from './trace.sql.ts'

/** SQLSTATE of two rows with one key: of an event, that two writers have taken its number. */
const UNIQUE_VIOLATION = '23505'

type Row<Part> = Readonly<Record<Exclude<keyof Part, 'shard' | 'done' | 'aside'>, string>> & { readonly shard: number }

/**
 * Records the outbox scenario of a run: what the sink received, as it came, and what the tables say in the end. It observes Lockstep as any user could, by
 * its tables and by a sink. There is nothing for it in the library.
 */
export class Recorder {
  readonly #admin: pg.Pool
  readonly #batches: Batch[] = []
  readonly #clashes: string[] = []

  private constructor(admin: pg.Pool) {
    this.#admin = admin
  }

  static async begin(admin: pg.Pool): Promise<Recorder> {
    await admin.query(RECORD)
    return new Recorder(admin)
  }

  /** What a dispatcher has sent, and what the broker has answered. */
  sent(question: unknown, answer: unknown): void {
    const { send, from } = question as Partial<Extract<Question, { send: unknown }>>
    if (send === undefined || from === undefined) return
    const events = send.map(({ key, seq, id, position = 0 }) => ({ stream: key, seq, id, position }))
    this.#batches.push({ ...from, events, taken: answer as boolean[] })
  }

  entry({ scenario, what, op, note = '' }: Entry): void {
    if (scenario === 'outbox' && what !== 'asked' && note.includes(UNIQUE_VIOLATION))
      this.#clashes.push(`${op}: ${note}`)
  }

  /** Only when all workers have ended. */
  async end(): Promise<Trace> {
    const client = await this.#admin.connect()
    try {
      const rows = async <Found extends object>(text: string): Promise<Found[]> =>
        (await client.query<Found & pg.QueryResultRow>(text)).rows
      const events = (await rows<Row<CommittedEvent>>(EVENTS)).map(
        ({ shard, position, xid, stream, seq, id }): CommittedEvent => ({
          shard,
          position: Number(position),
          xid: Number(xid),
          stream,
          seq: Number(seq),
          id,
        }),
      )
      const ticks = (await rows<Row<Tick>>(TICKS)).map(({ xid, snapshot }): Tick => ({
        xid: Number(xid),
        snapshot: readSnapshot(snapshot),
      }))
      const cursors = (await rows<Row<Cursor> & { done: boolean; aside: string[] | null }>(CURSORS)).map(
        ({ shard, version, fence, prev, next, after, done, aside }): Cursor => ({
          shard,
          version: Number(version),
          fence,
          prev: readSnapshot(prev),
          next: readSnapshot(next),
          after: Number(after),
          done,
          aside: (aside ?? []).map(Number),
        }),
      )
      const waiting = (await rows<{ position: string }>(WAITING)).map(({ position }) => Number(position))
      const crashed = ((await rows<{ crashes: number }>(CRASHES))[0]?.crashes ?? 0) > 0
      // A round ends when its acknowledged events have arrived; one of an unknown outcome can come later.
      return {
        events,
        ticks,
        cursors,
        batches: this.#batches,
        waiting,
        clashes: this.#clashes,
        crashed,
        complete: false,
      }
    } finally {
      client.release()
    }
  }
}
