import { setTimeout as sleep } from 'node:timers/promises'
import type { Imported, OutboxEvent } from 'pg-lockstep'
import type pg from 'pg'
import { evidence, goal, type Goal, type ResultRow } from '../../tools/judge/report.ts'
import { type KillableProcess, startProcess } from '../faults/killableProcess.ts'
import { type Random, random as randomOf } from '../seed.ts'
import { until } from '../until.ts'
import { attackInLab, type ReportProgress } from './attack.ts'
import {
  countUp,
  createOldOutbox,
  fillOldOutbox,
  HOLD_STREAM,
  insertOld,
  readBehind,
  readCounters,
  sessionsOf,
  triggersOf,
  WAITING_STEPS,
  waitingForCut,
} from './import.sql.ts'
import type { Client, Lab } from './lab.ts'

interface Size {
  readonly keys: number
  /** Rows that wait in the old table when it begins. */
  readonly backlog: number
  /** Sessions of old code, and as many of new code once the trigger is there. */
  readonly writers: number
  /** So often the import is killed. */
  readonly kills: number
  /** So many events are written by each kind of code while they run in parallel. */
  readonly sideBySide: number
}

const TABLE = 'old_outbox'
const TOPIC = 'imported'
const CONTROL = 'control_outbox'
const DELIVERED_MS = 600_000

/**
 * An outbox table is imported while its writers continue, whose transactions stay open for a moment so that numbers are committed late. The import is
 * killed with -9 again and again, also while it waits for the lock of its cut. Then old and new code write the same keys in parallel. At the
 * sink, the events of each key are those that were committed, in that order, each once. A reader that goes by the last number must be found out.
 */
export const importAttack = attackInLab<Size>({
  name: 'import',
  about:
    'an outbox table is imported under load, killed again and again, then written by old and new code at the same time',
  full: { keys: 200, backlog: 200_000, writers: 8, kills: 20, sideBySide: 20_000 },
  small: { keys: 20, backlog: 6000, writers: 3, kills: 3, sideBySide: 200 },
  async run(lab, size, reportProgress, random) {
    const results: ResultRow[] = []
    const goals: Goal[] = []
    const client = lab.client('pg', lab.url('direct'), { poolSize: size.writers + 6 })
    const arrived = new Map<string, Map<number, number>>()
    const stop = new AbortController()
    const dispatching = client.lockstep.outbox
      .dispatcher({ sink: (events: readonly OutboxEvent[]) => note(arrived, events), shards: 4 })
      .run({ signal: stop.signal })
    try {
      await lab.admin.query(createOldOutbox(TABLE))
      await lab.admin.query(fillOldOutbox(TABLE, size.keys, size.backlog))
      const writers = new Writers(lab, client, size)
      try {
        writers.start('old', size.writers, random)
        const killed = await importWithKills(lab, size, random, reportProgress)
        const cut = await killAtCut(lab)
        reportProgress('import: to its end')
        const imported = await importToItsEnd(lab)
        const before = writers.written.old
        writers.start('new', size.writers, random)
        reportProgress('import: old and new code at the same time')
        await until(
          () =>
            writers.failure !== undefined ||
            (writers.written.old >= before + size.sideBySide && writers.written.new >= size.sideBySide),
        )
        await writers.stop()
        if (writers.failure !== undefined) throw writers.failure
        const expected = await countersOf(lab, TABLE)
        const total = [...expected.values()].reduce((sum, n) => sum + n, 0)
        const inTime = await until(() => deliveredOf(arrived) >= total, DELIVERED_MS)
        const { lost, twice, swapped } = judge(expected, arrived)
        const { old, new: fresh } = writers.written
        results.push({
          what: 'import',
          rows: imported.copied,
          kills: killed,
          old,
          new: fresh,
          events: total,
          lost,
          twice,
          swapped,
        })
        goals.push(
          goal('events lost at the sink', lost, '=', 0),
          goal('events twice, under two numbers', twice, '=', 0),
          goal('events out of the order of commits of their key', swapped, '=', 0),
          goal('delivered in the end', inTime ? 1 : 0, '=', 1),
          goal('copied rows without their event, as the import verifies it', imported.missing, '=', 0),
          goal('copied rows that came late, as the import verifies it', imported.late, '=', 0),
          goal('triggers left by an import that was killed at its cut', cut.triggers, '=', 0),
          evidence('kills in the middle of a step', killed, '>=', Math.ceil(size.kills / 2)),
          evidence('kills while the cut waited', cut.killed, '=', 1),
          evidence('rows of old code beside the import', before, '>=', 1),
          evidence('events of new code', fresh, '>=', size.sideBySide),
        )
      } finally {
        await writers.stop()
      }
    } finally {
      stop.abort()
      await dispatching
    }
    reportProgress('import: the control, a reader that goes by the last number')
    const control = await readByNumber(lab)
    results.push({
      what: 'control',
      rows: control.rows,
      kills: 0,
      old: control.rows,
      new: 0,
      events: control.rows,
      lost: control.lost,
      twice: 0,
      swapped: 0,
    })
    goals.push(goal('control, by the last number: rows lost', control.lost, '>=', 1))
    return { results, goals }
  },
})

/** What each key got, in the order in which it arrived: of each number in its stream, the n that its writer gave it. */
function note(arrived: Map<string, Map<number, number>>, events: readonly OutboxEvent[]): void {
  for (const { key, seq, payload } of events) {
    const stream = arrived.get(key) ?? new Map<number, number>()
    // What is delivered again keeps the place of its first delivery.
    if (!stream.has(seq)) stream.set(seq, (payload as { n: number }).n)
    arrived.set(key, stream)
  }
}

function deliveredOf(arrived: ReadonlyMap<string, ReadonlyMap<number, number>>): number {
  return [...arrived.values()].reduce((sum, stream) => sum + stream.size, 0)
}

/** The events of each key have to be 1, 2, 3 and so on, up to its counter. */
function judge(
  expected: ReadonlyMap<string, number>,
  arrived: ReadonlyMap<string, ReadonlyMap<number, number>>,
): { lost: number; twice: number; swapped: number } {
  const found = { lost: 0, twice: 0, swapped: 0 }
  for (const [key, last] of expected) {
    const stream = arrived.get(key) ?? new Map<number, number>()
    const numbers = [...stream.values()]
    const distinct = new Set(numbers)
    found.twice += numbers.length - distinct.size
    for (let n = 1; n <= last; n++) if (!distinct.has(n)) found.lost++
    found.swapped += numbers.filter((n, place) => place > 0 && n < (numbers[place - 1] as number)).length
  }
  return found
}

async function countersOf(lab: Lab, table: string): Promise<Map<string, number>> {
  const { rows } = await lab.admin.query<{ key: string; n: number }>(readCounters(table))
  return new Map(rows.map(({ key, n }) => [key, n]))
}

/** Transactions of old and of new code. Both count up the key under its row lock: that is the order of its events. */
class Writers {
  readonly written = { old: 0, new: 0 }
  failure: Error | undefined
  readonly #pool: pg.Pool
  readonly #client: Client
  readonly #keys: number
  readonly #running: Promise<void>[] = []
  #stopped = false

  constructor(lab: Lab, client: Client, { writers, keys }: Size) {
    this.#pool = lab.pool(writers)
    this.#client = client
    this.#keys = keys
  }

  start(code: 'old' | 'new', count: number, random: Random): void {
    for (let n = 0; n < count; n++) {
      const own = randomOf(random.below(1_000_000), code, n)
      this.#running.push(this.#write(code, own).catch((error: unknown) => void (this.failure ??= error as Error)))
    }
  }

  async stop(): Promise<void> {
    this.#stopped = true
    await Promise.all(this.#running)
  }

  async #write(code: 'old' | 'new', random: Random): Promise<void> {
    while (!this.#stopped) {
      const key = `k${random.below(this.#keys)}`
      if (code === 'old') await this.#old(key, random)
      else await this.#new(key, random)
      this.written[code]++
    }
  }

  async #old(key: string, random: Random): Promise<void> {
    const session = await this.#pool.connect()
    try {
      await session.query('BEGIN')
      const { rows } = await session.query<{ n: number }>(countUp(TABLE), [key])
      await session.query(insertOld(TABLE), [key, rows[0]?.n])
      // Others get larger numbers and commit before it.
      if (random.chance(0.3)) await sleep(random.below(20))
      if (!random.chance(0.1)) return void (await session.query('COMMIT'))
      await session.query('ROLLBACK')
    } finally {
      session.release()
    }
  }

  async #new(key: string, random: Random): Promise<void> {
    const kept = random.chance(0.9)
    await this.#client.lockstep
      .transaction({}, async (tx) => {
        const { rows } = await tx.query<{ n: number }>(countUp(TABLE), [key])
        await tx.enqueue({ topic: TOPIC, key, payload: { n: rows[0]?.n } })
        if (!kept) throw new RolledBack()
      })
      .catch((error: unknown) => {
        if (!(error instanceof RolledBack)) throw error
      })
  }
}

class RolledBack extends Error {}

interface ImportMessage {
  readonly progress?: { readonly left: number }
  readonly imported?: Imported
  readonly failed?: string
}

function startImport(lab: Lab): { running: KillableProcess; seen: ImportMessage[] } {
  const file = new URL('processes/importProcess.ts', import.meta.url)
  const running = startProcess(file, [lab.url('direct'), TABLE, TOPIC])
  const seen: ImportMessage[] = []
  running.child.on('message', (message) => seen.push(message as ImportMessage))
  return { running, seen }
}

/**
 * Each is killed in the middle of a step: a transaction that has the lock of a stream holds the step up meanwhile. Returns how many were.
 * What the server does with the step afterwards is its own affair: it commits, or it does not.
 */
async function importWithKills(lab: Lab, size: Size, random: Random, reportProgress: ReportProgress): Promise<number> {
  let struck = 0
  const most = Math.floor(size.backlog / 1000 / size.kills) - 2
  for (let kill = 1; kill <= size.kills; kill++) {
    reportProgress(`import: kill ${kill} of ${size.kills}`)
    const { running, seen } = startImport(lab)
    const steps = random.whole(0, Math.max(0, most))
    const ended = (): boolean => seen.some(({ imported, failed }) => (imported ?? failed) !== undefined)
    if (steps > 0) await until(() => seen.length >= steps || ended())
    const holder = await lab.admin.connect()
    let pids: number[] = []
    try {
      await holder.query('BEGIN')
      await holder.query(HOLD_STREAM, [TOPIC])
      await until(async () => {
        pids = (await lab.admin.query<{ pid: number }>(WAITING_STEPS)).rows.map(({ pid }) => pid)
        return pids.length > 0 || ended()
      })
      if (pids.length > 0) struck++
      await running.kill()
    } finally {
      await holder.query('ROLLBACK')
      holder.release()
    }
    if (pids.length > 0) await until(async () => (await lab.admin.query(sessionsOf(pids))).rowCount === 0)
  }
  return struck
}

/** An open transaction of old code delays the cut, which is killed meanwhile: nothing of it is left, and writers continue. */
async function killAtCut(lab: Lab): Promise<{ killed: number; triggers: number }> {
  const { rowCount: there } = await lab.admin.query(triggersOf(TABLE))
  if (there !== 0) return { killed: 0, triggers: 0 }
  const open = await lab.admin.connect()
  const { running, seen } = startImport(lab)
  try {
    await open.query('BEGIN')
    const { rows } = await open.query<{ n: number }>(countUp(TABLE), ['k0'])
    await open.query(insertOld(TABLE), ['k0', rows[0]?.n])
    let pids: number[] = []
    await until(async () => {
      pids = (await lab.admin.query<{ pid: number }>(waitingForCut(TABLE))).rows.map(({ pid }) => pid)
      return pids.length > 0 || seen.some(({ failed }) => failed !== undefined)
    })
    await running.kill()
    await open.query('COMMIT')
    if (pids.length === 0) return { killed: 0, triggers: 0 }
    await until(async () => (await lab.admin.query(sessionsOf(pids))).rowCount === 0)
    return { killed: 1, triggers: (await lab.admin.query(triggersOf(TABLE))).rowCount ?? 0 }
  } finally {
    open.release()
  }
}

async function importToItsEnd(lab: Lab): Promise<Imported> {
  const { running, seen } = startImport(lab)
  const ended = (): ImportMessage | undefined => seen.find(({ imported, failed }) => (imported ?? failed) !== undefined)
  try {
    await until(() => ended() !== undefined)
    const { imported, failed } = ended() ?? {}
    if (imported === undefined) throw new Error(`The import failed: ${failed}`)
    return imported
  } finally {
    await running.kill()
  }
}

/** Reads rows behind the last number, while a transaction with a smaller one is still open. */
async function readByNumber(lab: Lab): Promise<{ rows: number; lost: number }> {
  await lab.admin.query(createOldOutbox(CONTROL))
  const late = await lab.admin.connect()
  const seen = new Set<number>()
  let last = 0
  const read = async (): Promise<void> => {
    const { rows } = await lab.admin.query<{ id: number; n: number }>(readBehind(CONTROL), [last])
    for (const { n } of rows) seen.add(n)
    last = rows.at(-1)?.id ?? last
  }
  try {
    await late.query('BEGIN')
    await late.query(insertOld(CONTROL), ['a', 1])
    await lab.admin.query(insertOld(CONTROL), ['b', 2])
    await read()
    await late.query('COMMIT')
  } finally {
    late.release()
  }
  await lab.admin.query(insertOld(CONTROL), ['a', 3])
  await read()
  return { rows: 3, lost: [1, 2, 3].filter((n) => !seen.has(n)).length }
}
