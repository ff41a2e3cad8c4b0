import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { type GuardMode, key, type Lockstep, WriteWithoutLockError } from 'pg-lockstep'
import { goal, type Goal, type ResultRow } from '../../tools/judge/report.ts'
import { kyselyOnPg } from '../../tools/orms/underTest/kysely.ts'
import type { OpenOrm } from '../../tools/orms/underTest/ormUnderTest.ts'
import { findProgram } from '../../tools/server/findProgram.ts'
import type { Random } from '../seed.ts'
import { attackInLab } from './attack.ts'
import { ADDED, add, addByHand, create, legacyWrites, moveAway, TABLE } from './guard.sql.ts'
import type { Client, Lab } from './lab.ts'

interface Size {
  /** How often each legacy writer goes through its statements. */
  readonly rounds: number
  /** Writers of Lockstep beside them, and how many transactions each has. */
  readonly writers: number
  readonly transactions: number
}

const ACCOUNTS = 40
const SQLSTATE = 'LS002'
const KEY = 'Account:{id}'

/** A program that knows nothing of Lockstep. */
interface Legacy {
  readonly name: string
  /** Runs one statement: whether it was refused by the guard. Every other error is thrown. */
  run(text: string): Promise<'written' | 'refused'>
  close(): Promise<void>
}

interface Counted {
  written: number
  refused: number
}

/**
 * Old programs write to a table while new ones write under its locks. Without a guard they get through: the control. Observed, they get
 * through and each row is counted, none of the new programs' is. Enforced, each statement fails, and nothing of it is in the table.
 */
export const guard = attackInLab<Size>({
  name: 'guard',
  about: 'programs that do not lock against guarded tables, observed and enforced, on pg, postgres.js, Kysely and psql',
  full: { rounds: 150, writers: 4, transactions: 400 },
  small: { rounds: 3, writers: 2, transactions: 12 },
  async run(lab, size, reportProgress, random) {
    const results: ResultRow[] = []
    const goals: Goal[] = []
    for (const mode of ['no guard', 'observe', 'enforce'] as const) {
      reportProgress(`guard: ${mode}`)
      const row = await play(lab, mode, size, random)
      results.push({ mode, ...row.shown })
      goals.push(...row.goals)
    }
    return { results, goals }
  },
})

async function play(
  lab: Lab,
  mode: 'no guard' | Extract<GuardMode, string>,
  size: Size,
  random: Random,
): Promise<{ shown: ResultRow; goals: Goal[] }> {
  const legacies = await oldPrograms(lab)
  await lab.admin.query(create(legacies.length, size.rounds))
  const clients = newPrograms(lab)
  const [{ lockstep }] = clients
  if (mode !== 'no guard') await lockstep.guards.add(TABLE, { key: KEY, mode })
  const orm = await kyselyOnPg.open({ lockstep, pool: clients[0].pool, url: lab.url('direct') })
  try {
    const counted = new Map<string, Counted>()
    let committed = 0
    let byHand = 0
    await Promise.all([
      ...legacies.map(async (program, place) =>
        counted.set(program.name, await writeWithoutLock(program, place + 1, size.rounds, random)),
      ),
      ...Array.from({ length: size.writers }, async (_, place) => {
        for (let n = 0; n < size.transactions; n++) {
          const { lockstep: writer } = clients[place % clients.length] as Client
          await writeUnderLock(writer, place === 0 ? orm : undefined, 1 + random.below(ACCOUNTS), n)
          committed++
        }
      }),
      (async () => {
        for (let n = 0; n < size.rounds; n++, byHand++) await lab.admin.query(addByHand(1 + random.below(ACCOUNTS)))
      })(),
    ])
    const moved = await moveHalfLocked(lockstep)
    const [rows] = (await lab.admin.query<{ added: number; legacy: number; left: number }>(ADDED)).rows
    const [state] = mode === 'no guard' ? [] : await lockstep.guards.list()
    const sampled = new Set(
      mode === 'no guard'
        ? []
        : (await lockstep.guards.samples(TABLE, { limit: 1000 })).map((each) => each.application),
    )
    const written = sumOf(counted, 'written')
    const refused = sumOf(counted, 'refused')
    const attempted = legacies.length * size.rounds * legacyWrites(1, 1, 1).length
    const shown = {
      'legacy statements': attempted,
      'got through': written,
      refused,
      'counted unlocked': state?.unlocked ?? 0,
      'counted by list': state?.listed ?? 0,
      'counted refused': state?.refused ?? 0,
      'under the lock': committed,
      'programs sampled': sampled.size,
    }
    const goals = [
      goal(`${mode}: transactions under the lock`, committed, '=', size.writers * size.transactions),
      goal(`${mode}: transactions of plain SQL that locks`, byHand, '=', size.rounds),
    ]
    if (mode === 'no guard') {
      goals.push(goal('control, no guard: legacy statements that got through', written, '=', attempted))
      goals.push(goal('control, no guard: rows that were moved away from their key', moved, '=', 2))
    }
    if (mode === 'observe') {
      goals.push(goal('observe: legacy statements that got through', written, '=', attempted))
      // A move is one row, of which one of two keys was locked.
      goals.push(
        goal('observe: writes without the lock that were not counted', attempted + 2 - (state?.unlocked ?? 0), '=', 0),
      )
      goals.push(goal('observe: locks of plain SQL that were found', state?.listed ?? -1, '=', byHand))
      goals.push(
        goal(
          'observe: legacy programs without a sample',
          legacies.filter(({ name }) => !sampled.has(name)).length,
          '=',
          0,
        ),
      )
    }
    if (mode === 'enforce') {
      const gone = legacies.length * size.rounds - (rows?.left ?? 0)
      goals.push(goal('enforce: writes without the lock', written + (rows?.legacy ?? -1) + gone, '=', 0))
      goals.push(goal('enforce: legacy statements refused', refused, '=', attempted))
      goals.push(goal('enforce: rows that were moved away from their key', moved, '=', 0))
      goals.push(goal('enforce: refusals that were counted', state?.refused ?? -1, '=', attempted + 2))
      goals.push(goal('enforce: lost updates under the lock', committed + byHand - (rows?.added ?? -1), '=', 0))
    }
    return { shown, goals }
  } finally {
    await orm.close()
    if (mode !== 'no guard') await lockstep.guards.remove(TABLE)
    await Promise.all([...legacies, ...clients].map((each) => each.close()))
  }
}

/** Both drivers, straight at the server and behind PgBouncer. */
function newPrograms(lab: Lab): [Client, ...Client[]] {
  return [
    lab.client('pg', lab.url('direct'), { application: 'lockstep pg', poolSize: 4 }),
    lab.client('postgres', lab.url('direct'), { application: 'lockstep postgres', poolSize: 4 }),
    lab.client('pg', lab.url('pooled'), { application: 'lockstep pooled', poolSize: 4 }),
  ]
}

/** One row, at every isolation, now and then through an ORM. */
async function writeUnderLock(lockstep: Lockstep, orm: OpenOrm | undefined, id: number, n: number): Promise<void> {
  const isolation = (['read committed', 'serializable', 'repeatable read'] as const)[n % 3] ?? 'read committed'
  await lockstep.transaction({ lock: key`Account:${id}`, isolation }, async (tx) => {
    if (orm === undefined) await tx.query(add(id))
    else await orm.inside(tx, (part) => part.raw(add(id)))
  })
}

async function writeWithoutLock(from: Legacy, place: number, rounds: number, random: Random): Promise<Counted> {
  const counted: Counted = { written: 0, refused: 0 }
  for (let round = 1; round <= rounds; round++) {
    for (const text of legacyWrites(1 + random.below(ACCOUNTS), place, round)) counted[await from.run(text)]++
  }
  return counted
}

/** Two transactions that hold the lock of one side of a move only. */
async function moveHalfLocked(lockstep: Lockstep): Promise<number> {
  let moved = 0
  for (const [id, held] of [
    [1, key`Account:${1}`],
    [2, key`Account:${5002}`],
  ] as const) {
    try {
      await lockstep.transaction({ lock: held }, (tx) => tx.query(moveAway(id)))
      moved++
    } catch (error) {
      if (!(error instanceof WriteWithoutLockError)) throw error
    }
  }
  return moved
}

function sumOf(counted: ReadonlyMap<string, Counted>, what: keyof Counted): number {
  return [...counted.values()].reduce((sum, each) => sum + each[what], 0)
}

async function oldPrograms(lab: Lab): Promise<Legacy[]> {
  const url = lab.url('direct')
  const [pg, postgres, pooled, forOrm] = [
    lab.client('pg', url, { application: 'legacy pg' }),
    lab.client('postgres', url, { application: 'legacy postgres.js' }),
    lab.client('pg', lab.url('pooled'), { application: 'legacy pooled' }),
    lab.client('pg', url, { application: 'legacy Kysely' }),
  ]
  const kysely = await kyselyOnPg.open({ lockstep: forOrm.lockstep, pool: forOrm.pool, url })
  const psql = findProgram('psql')
  return [
    legacy('legacy pg', (text) => pg.query(text), pg),
    legacy('legacy postgres.js', (text) => postgres.query(text), postgres),
    legacy('legacy pooled', (text) => pooled.query(text), pooled),
    legacy('legacy Kysely', (text) => kysely.own('read committed', (part) => part.raw(text)), forOrm),
    ...(psql === undefined ? [] : [legacy('legacy psql', (text) => runPsql(psql, url, text), nothingToClose)]),
  ]
}

const nothingToClose = { close: () => Promise.resolve() }

function legacy(name: string, run: (text: string) => Promise<unknown>, to: { close(): Promise<void> }): Legacy {
  return {
    name,
    async run(text) {
      try {
        await run(text)
        return 'written'
      } catch (error) {
        if (codeIn(error) !== SQLSTATE) throw error
        return 'refused'
      }
    },
    close: () => to.close(),
  }
}

function codeIn(error: unknown): unknown {
  return (error as { code?: unknown }).code
}

const execute = promisify(execFile)

/** psql prints the SQLSTATE, and nothing else of an error. */
async function runPsql(psql: string, url: string, text: string): Promise<void> {
  const args = ['-X', '-q', '-v', 'ON_ERROR_STOP=1', '-v', 'VERBOSITY=sqlstate', '-c', text, '-d', url]
  await execute(psql, args, { env: { ...process.env, PGAPPNAME: 'legacy psql' } }).catch(
    (error: Error & { stderr?: string }) => {
      const code = /ERROR:\s+(\w{5})/.exec(error.stderr ?? '')?.[1]
      throw Object.assign(new Error(`psql: ${error.stderr ?? error.message}`), { code })
    },
  )
}
