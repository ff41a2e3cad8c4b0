import { COUNTER, CREATE_ORM_TABLES, START_COUNTER } from '../../tools/orms/underTest/tables.sql.ts'
import { type OrmEntry, ormsUnderTest } from '../../tools/orms/underTest/index.ts'
import { goal, type Goal, type ResultRow } from '../../tools/judge/report.ts'
import { timeUntilNoLocks } from '../checkers/leftovers.ts'
import { strikeSessions } from '../faults/sessions.ts'
import { attack, type ReportProgress } from './attack.ts'
import { type Lab, openLab } from './lab.ts'
import { EVENTS, NOTES } from './orm.sql.ts'
import { Player, Reported } from './orm/players.ts'

interface Size {
  /** Of each process. */
  readonly callers: number
  /** How often a process is killed, for each ORM. */
  readonly kills: number
  /** How much a process commits before it is killed, and after the last kill. */
  readonly commits: number
  /** How often each caller of the control counts. */
  readonly naive: number
}

/** One in the middle of a transaction that has written. Those behind the pooler are its own. */
const ONE_WRITER = { application: 'orm direct', middleOf: 'a transaction that has written', most: 1 } as const

/**
 * Two processes count through an ORM, one straight at the server, one behind PgBouncer in transaction mode, with nested transactions, of
 * which one fails, with events, and with transactions that are rolled back. Meanwhile processes are killed with kill -9 and sessions are
 * terminated. Each committed transaction has its increment, its note and its event, and nothing of what was rolled back is there. The same
 * ORM without the lock must lose updates.
 */
export const orm = attack<Size>({
  name: 'orm',
  about:
    'counting through each ORM from two processes, one behind PgBouncer, while processes are killed and sessions terminated',
  full: { callers: 4, kills: 8, commits: 40, naive: 40 },
  small: { callers: 3, kills: 1, commits: 4, naive: 10 },
  async run(size, reportProgress) {
    const lab = await openLab()
    const players = [new Player(lab, 'direct'), new Player(lab, 'pooled')] as const
    try {
      await lab.admin.query(CREATE_ORM_TABLES)
      await Promise.all(players.map((player) => player.start()))
      const results: ResultRow[] = []
      const goals: Goal[] = []
      for (const entry of ormsUnderTest) {
        const row = await playOne(lab, players, entry, size, reportProgress)
        results.push(row)
        for (const [column, value] of Object.entries(row)) {
          if (MUST_BE_ZERO.has(column)) goals.push(goal(`${entry.name}: ${column}`, Number(value), '=', 0))
        }
        goals.push(goal(`${entry.name}: processes killed`, Number(row['killed']), '=', size.kills))
        reportProgress(`orm: ${entry.name}, control`)
        const lost = await withoutLock(lab, players, entry, size)
        goals.push(goal(`control, ${entry.name} without the lock: lost updates`, lost, '>=', 1))
      }
      return { results, goals }
    } finally {
      await Promise.all(players.map((player) => player.kill()))
      await lab.close()
    }
  },
})

const MUST_BE_ZERO = new Set([
  'lost updates',
  'reported and missing',
  'rows of what was rolled back',
  'events missing',
  'gaps',
  'other errors',
  'locks left',
])

type Players = readonly [Player, Player]

async function playOne(
  lab: Lab,
  players: Players,
  { name, driver }: OrmEntry,
  size: Size,
  reportProgress: ReportProgress,
): Promise<ResultRow> {
  await lab.admin.query(START_COUNTER, [name])
  const reported = new Reported()
  const { callers } = size
  const play = (player: Player, prefix: string): void =>
    player.play({ orm: name, callers, prefix: `${name} ${prefix}` }, reported)
  players.forEach((player, place) => play(player, `${place}`))
  let terminated = 0
  for (let killed = 0; killed < size.kills; killed++) {
    reportProgress(`orm: ${name}, ${killed} of ${size.kills} killed`)
    const victim = players[killed % 2 === 0 ? 1 : 0]
    await victim.until(size.commits)
    terminated += await strikeSessions(lab.admin, 'terminate', ONE_WRITER)
    await victim.kill()
    await victim.start()
    play(victim, `after kill ${killed}`)
  }
  await Promise.all(players.map((player) => player.until(size.commits)))
  await Promise.all(players.map((player) => player.stop()))
  const locksGone = await timeUntilNoLocks(lab.admin)
  const { rows } = await lab.admin.query<{ id: string }>(NOTES, [`${name} %`])
  const there = new Set(rows.map(({ id }) => id))
  const [events] = (await lab.admin.query<{ count: number; last: number }>(EVENTS, [name])).rows
  return {
    orm: name,
    driver,
    committed: there.size,
    killed: size.kills,
    'sessions terminated': terminated,
    'lost updates': there.size - (await counterOf(lab, name)),
    'reported and missing': reported.committed.filter((id) => !there.has(id)).length,
    'rows of what was rolled back': [...there].filter(isUndone).length,
    'events missing': there.size - (events?.count ?? 0),
    gaps: (events?.last ?? 0) - (events?.count ?? 0),
    'other errors': reported.errors.length,
    'first error': reported.errors[0] ?? '',
    'locks left': locksGone === undefined ? 1 : 0,
  }
}

/** The inner transaction that fails, and every third one as a whole. */
function isUndone(id: string): boolean {
  return id.endsWith('undone') || Number(id.split('-').at(-1)) % 3 === 2
}

async function withoutLock(lab: Lab, players: Players, { name }: OrmEntry, size: Size): Promise<number> {
  await lab.admin.query(START_COUNTER, [name])
  const reported = new Reported()
  players.forEach((player, place) => {
    player.play({ orm: name, callers: size.callers, prefix: `naive ${name} ${place}`, naive: size.naive }, reported)
  })
  await Promise.all(players.map((player) => player.ended()))
  const { rowCount } = await lab.admin.query(NOTES, [`naive ${name} %`])
  return (rowCount ?? 0) - (await counterOf(lab, name))
}

async function counterOf({ admin }: Lab, name: string): Promise<number> {
  return (await admin.query<{ value: number }>(COUNTER, [name])).rows[0]?.value ?? NaN
}
