import { setTimeout as sleep } from 'node:timers/promises'
import type { Lockstep, Transaction } from 'pg-lockstep'
import type { Random } from '../../seed.ts'
import { ENQUEUE_BY_SQL, TAKE_XID } from './outbox.sql.ts'

/** What writers did, by the marks of their events. */
export class Writings {
  readonly random: Random
  readonly committed = new Set<string>()
  readonly rolledBack = new Set<string>()
  /** Events whose COMMIT was not answered. */
  readonly unknown = new Set<string>()
  /** Ends the writers that write until the run is over. */
  over = false
  #marks = 0

  constructor(random: Random) {
    this.random = random
  }

  mark(): string {
    return String(++this.#marks)
  }
}

const TOPIC = 'trades'

class RollbackError extends Error {}

/** One transaction of a writer: some events to some keys, in one of the usual forms; some are rolled back. */
export async function writeOnce(lockstep: Lockstep, writings: Writings, keys: number): Promise<void> {
  const { random } = writings
  const kept: string[] = []
  const dropped: string[] = []
  const undo = random.chance(0.15)
  const way = random.next()
  const event = (mark: string): { topic: string; key: string; payload: { mark: string } } => {
    return { topic: TOPIC, key: `portfolio ${random.below(keys)}`, payload: { mark } }
  }
  const note = (list: string[]): string => {
    const mark = writings.mark()
    list.push(mark)
    return mark
  }
  const work = async (tx: Transaction): Promise<void> => {
    // Retried, it begins again.
    for (const mark of [...kept.splice(0), ...dropped.splice(0)]) writings.rolledBack.add(mark)
    // An early id, late events: the order of ids is not the order of commits.
    if (way < 0.3) {
      await tx.query(TAKE_XID)
      if (way < 0.1) await sleep(random.next() * 10)
    }
    // By SQL events get their numbers at once: with others after them, streams are locked out of order, and that may be retried.
    const bySql = way > 0.5 && way < 0.6
    const count = bySql && way > 0.51 ? 0 : random.whole(5, 34)
    await tx.enqueueMany(Array.from({ length: count }, () => event(note(kept))))
    if (way > 0.8) {
      await tx
        .savepoint(async (part) => {
          await part.enqueue(event(note(dropped)))
          throw new RollbackError()
        })
        .catch(() => undefined)
      await tx.savepoint((part) => part.enqueue(event(note(kept))))
    }
    if (bySql) {
      const { topic, key, payload } = event(note(kept))
      await tx.query(ENQUEUE_BY_SQL, [topic, key, JSON.stringify(payload)])
    }
    if (undo) throw new RollbackError()
  }
  try {
    await lockstep.transaction({}, work)
    for (const mark of kept) writings.committed.add(mark)
  } catch (error) {
    if (error instanceof RollbackError) for (const mark of kept) writings.rolledBack.add(mark)
    else for (const mark of kept) writings.unknown.add(mark)
  }
  for (const mark of dropped) writings.rolledBack.add(mark)
}

/** A writer that has its number and stays open. */
export async function writeSlowly(lockstep: Lockstep, writings: Writings, key: string, openMs: number): Promise<void> {
  const mark = writings.mark()
  await lockstep.transaction({}, async (tx) => {
    await tx.query(ENQUEUE_BY_SQL, [TOPIC, key, JSON.stringify({ mark })])
    await sleep(openMs)
  })
  writings.committed.add(mark)
}
