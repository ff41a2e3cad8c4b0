import type { PostgresServer } from '../../../tools/server/postgres.ts'
import { orderOf } from '../../checkers/keyOrder.ts'
import type { Random } from '../../seed.ts'
import { until } from '../../until.ts'
import { type LockstepDatabase, makeDatabase } from '../database.ts'
import { RecordingSink, startRun } from './recording.ts'
import { type Judgement, RestoredCopy } from './restoredCopy.ts'
import { dispatch, type DispatcherName, DISPATCHERS, type Dump, newSinks, SETTLED_MS, writeOn } from './restoring.ts'
import { CLAIM_CURSORS } from './restoring.sql.ts'
import { Writings } from './writers.ts'

/** So many transactions are written at each step. */
const SOME = 12
/** Between two rebases so many arrive. */
const FLOWING = 200
/** Cursors that are wrong deliver nothing more; this is not waited for in vain for long. */
const CONTROL_MS = 3000

/** The outcome of a copy on which `undelivered` was chosen. */
export interface Continued {
  /** Dispatchers that were refused by name before the rebase, of three. */
  readonly refused: number
  /** Sinks that had received events before that. */
  readonly reached: number
  readonly cutWindows: number
  readonly waiting: number
  readonly delivered: number
  readonly putAside: number
  /** The difference to what had to be. */
  readonly putAsideWrongly: number
  /** By a second rebase. */
  readonly putAsideAgain: number
  /** Events of streams that wait for an operator that came before he said so. */
  readonly tooEarly: number
  /** Segments that retention has emptied in the end. */
  readonly dropped: number
  readonly judgements: Readonly<Record<DispatcherName, Judgement>>
  readonly again: Dump | undefined
}

/**
 * Restores a dump, chooses `undelivered`, and dispatches: what the original had delivered and what the copy delivers must be one
 * history. Some is enqueued before the rebase; there are two rebases at first and one later; the server's own transaction ids pass those
 * in the dump; segments are emptied. `again`: at the end, some is enqueued and the copy is dumped itself.
 */
export async function continueOn(server: PostgresServer, name: string, dump: Dump, again?: string): Promise<Continued> {
  const copy = await RestoredCopy.restore(server, name, dump)
  try {
    const { outbox } = copy.database.lockstep
    const refusal = await refusals(copy.database, dump.writings.random)
    const held = await copy.held()
    const early = await copy.write(SOME)
    const { putAside } = await outbox.rebase({ deliver: 'undelivered', reason: 'the proof' })
    const { putAside: putAsideAgain } = await outbox.rebase({ deliver: 'undelivered' })
    const toBePutAside = DISPATCHERS.map((each) => {
      return early.size + [...copy.found.shares[each].undelivered.values()].filter((waits) => !waits).length
    })
    let stop = copy.start()
    await copy.write(SOME)
    await copy.settled(held)
    const tooEarly = copy.sinks.default.arrivals.all.filter(({ key }) => held.has(key)).length
    await copy.letGo()
    await copy.settled()
    await stop()
    await outbox.rebase({ deliver: 'undelivered' })
    await copy.passXids()
    stop = copy.start()
    await copy.write(SOME)
    await copy.settled()
    const dropped = await copy.dropSegments()
    await copy.write(SOME)
    await copy.settled()
    await stop()
    const judgements = { default: await copy.judge('default'), second: await copy.judge('second') }
    if (again !== undefined) await copy.write(SOME)
    return {
      ...refusal,
      cutWindows: copy.found.cutWindows,
      waiting: held.size,
      delivered: copy.found.shares.default.delivered.length + copy.found.shares.second.delivered.length,
      putAside,
      putAsideWrongly: Math.abs(putAside - toBePutAside.reduce((sum, each) => sum + each, 0)),
      putAsideAgain,
      tooEarly,
      dropped,
      judgements,
      again: again === undefined ? undefined : await copy.dumpAgain(again),
    }
  } finally {
    await copy.close()
  }
}

/** How many of the dispatchers in the dump, and of one with a new name, are refused by name. */
async function refusals({ lockstep }: LockstepDatabase, random: Random): Promise<{ refused: number; reached: number }> {
  const sinks = [...DISPATCHERS, 'third'].map((name) => ({ name, sink: new RecordingSink(random) }))
  const codes = await Promise.all(sinks.map(({ name, sink }) => startRun(lockstep, { name, sink }).ended))
  return {
    refused: codes.filter((code) => code === 'LOCKSTEP_OUTBOX_REBASE_NEEDED').length,
    reached: sinks.filter(({ sink }) => sink.opened || sink.arrivals.count > 0).length,
  }
}

/** With `none`: what waited in the dump and what was enqueued after the choice, and nothing else. */
export async function deliverNone(
  server: PostgresServer,
  name: string,
  dump: Dump,
): Promise<{ deliveries: number; missing: number; tooMuch: number; outOfOrder: number }> {
  const copy = await RestoredCopy.restore(server, name, dump)
  try {
    await copy.write(SOME)
    await copy.database.lockstep.outbox.rebase({ deliver: 'none' })
    const stop = copy.start()
    const late = await copy.write(SOME)
    await copy.letGo()
    const events = await copy.events()
    const row = { deliveries: 0, missing: 0, tooMuch: 0, outOfOrder: 0 }
    for (const each of DISPATCHERS) {
      const { undelivered } = copy.found.shares[each]
      const { arrivals } = copy.sinks[each]
      const wanted = events.filter(({ id, mark }) => undelivered.get(id) === true || late.has(mark))
      const missing = (): number => arrivals.missing(wanted.map(({ mark }) => mark))
      await until(() => missing() === 0, SETTLED_MS)
      const ids = new Set(wanted.map(({ id }) => id))
      // Numbers are skipped here; none can come again, or behind a later one.
      const { inversions, duplicates, diverged } = orderOf(arrivals.all)
      row.tooMuch += arrivals.all.filter(({ id }) => !ids.has(id)).length
      row.outOfOrder += inversions + duplicates + diverged
      row.deliveries += arrivals.count
      row.missing += missing()
    }
    await stop()
    return row
  } finally {
    await copy.close()
  }
}

/** With `all`: everything that is in it, from the first number on. */
export async function deliverAll(server: PostgresServer, name: string, dump: Dump): Promise<Judgement> {
  const empty = { arrivals: [], before: 0 }
  const copy = await RestoredCopy.restore(server, name, { ...dump, history: { default: empty, second: empty } })
  try {
    await copy.write(SOME)
    await copy.database.lockstep.outbox.rebase({ deliver: 'all' })
    const stop = copy.start()
    await copy.write(SOME)
    await copy.letGo()
    await copy.settled()
    await stop()
    return await copy.judge('default')
  } finally {
    await copy.close()
  }
}

/** Rebases again and again where there is no need, while writers write and dispatchers run: something comes twice, and that is all. */
export async function rebaseWhileRunning(
  server: PostgresServer,
  name: string,
  times: number,
  random: Random,
): Promise<{ deliveries: number; duplicates: number; outOfOrder: number; missing: number }> {
  const database = await makeDatabase(server, name)
  const writings = new Writings(random)
  const { default: sink, ...others } = newSinks(random)
  try {
    await database.lockstep.migrate()
    const stop = dispatch(database, { default: sink, ...others })
    const writing = writeOn(database, writings)
    for (let n = 0; n < times; n++) {
      const { count } = sink.arrivals
      await until(() => sink.arrivals.count >= count + FLOWING, SETTLED_MS)
      await database.lockstep.outbox.rebase({ deliver: 'undelivered' })
    }
    writings.over = true
    await writing
    await until(() => sink.arrivals.missing(writings.committed) === 0, SETTLED_MS)
    await stop()
    const { deliveries, duplicates, outOfOrder } = sink.arrivals.report()
    return { deliveries, duplicates, outOfOrder, missing: sink.arrivals.missing(writings.committed) }
  } finally {
    writings.over = true
    await database.close()
  }
}

/** The control: a person writes this server's name into the tables and keeps the cursors. */
export async function claimCursors(server: PostgresServer, name: string, dump: Dump): Promise<Judgement> {
  const copy = await RestoredCopy.restore(server, name, dump)
  try {
    await copy.database.pool.query(CLAIM_CURSORS)
    const stop = copy.start()
    await copy.write(SOME)
    await copy.passXids()
    const late = await copy.write(SOME)
    await copy.letGo()
    await until(() => copy.sinks.default.arrivals.missing(late) === 0, CONTROL_MS)
    await stop()
    return await copy.judge('default')
  } finally {
    await copy.close()
  }
}
