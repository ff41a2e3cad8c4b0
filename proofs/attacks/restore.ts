import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Goal, goal, type ResultRow } from '../../tools/judge/report.ts'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { missingOf15, SERVER_15 } from '../../tools/server/postgres15.ts'
import { failOver } from './outbox/failingOver.ts'
import {
  claimCursors,
  type Continued,
  continueOn,
  deliverAll,
  deliverNone,
  rebaseWhileRunning,
} from './outbox/rebasing.ts'
import type { Random } from '../seed.ts'
import { ageServer, type Dump, dumpUnderLoad } from './outbox/restoring.ts'
import { type Findings, attack, type ReportProgress } from './attack.ts'

interface Size {
  readonly events: number
  readonly runningDumps: number
  readonly rebases: number
  readonly failovers: number
}

/** The original has given out so many more transaction ids than the server on which it is restored. */
const AGE = 50_000

/**
 * An outbox under load is dumped with pg_dump, with its dispatchers stopped and while they run, and restored on another server: no caller
 * dispatches there before an operator has chosen, and then the two deliver one history. A standby is refused; when it is promoted,
 * dispatch continues by itself. The control keeps the cursors of the original on the other server.
 */
export const restore = attack<Size>({
  name: 'restore',
  about: 'the outbox restored from a dump, on a standby, and after a failover: one history, nothing lost',
  full: { events: 40_000, runningDumps: 6, rebases: 40, failovers: 6 },
  small: { events: 2000, runningDumps: 1, rebases: 5, failovers: 1 },
  async run(size, reportProgress, random) {
    const missing = missingOf15()
    if (missing !== undefined) return skip(missing)
    const restored = await dumpAndRestore(size, reportProgress, random)
    const promoted = await standbys(size, reportProgress, random)
    return {
      results: [...restored.results, ...promoted.results],
      goals: [...restored.goals, ...promoted.goals],
    }
  },
})

/** Where `tools/prepare.ts` could not install it. Under CI nothing is skipped. */
function skip(missing: string): Findings {
  const told = `attack restore is SKIPPED: there is no ${missing}`
  if (process.env['CI'] === 'true') throw new Error(`${told}, which CI=true forbids`)
  console.warn(told)
  return { results: [{ outbox: told }], goals: [] }
}

async function dumpAndRestore(size: Size, reportProgress: ReportProgress, random: Random): Promise<Findings> {
  const folder = await mkdtemp(join(tmpdir(), 'lockstep-dumps-'))
  const start = (): Promise<PostgresServer> =>
    startPostgres({ binariesFrom: SERVER_15, settings: { max_connections: '200' } })
  const servers: PostgresServer[] = []
  try {
    const [original, other] = await Promise.all([start(), start()])
    servers.push(original, other)
    const dumpNow = async (name: string, quiet: boolean): Promise<Dump> => {
      reportProgress(`restore: the dump ${name}`)
      await ageServer(original, AGE)
      return dumpUnderLoad(original, { name, quiet, events: size.events, file: join(folder, name), random })
    }
    const quiet = await dumpNow('quiet', true)
    reportProgress('restore: the control')
    // First: the other server's ids are still behind.
    const control = await claimCursors(other, 'control', quiet)
    reportProgress('restore: the dump quiet, on the other server')
    const [once, twice, none, all] = await Promise.all([
      continueOn(other, 'once', quiet, join(folder, 'again')),
      continueOn(other, 'twice', quiet),
      deliverNone(other, 'none_of_it', quiet),
      deliverAll(other, 'all_of_it', quiet),
    ])
    const copies: Record<string, Continued> = { 'at a quiet moment': once, 'the same once more': twice }
    if (once.again !== undefined)
      copies['the copy, back on its origin server'] = await continueOn(original, 'back', once.again)
    const running: Continued[] = []
    for (let number = 1; number <= size.runningDumps; number++) {
      const dump = await dumpNow(`running_${number}`, false)
      reportProgress(`restore: the dump running_${number}, on the other server`)
      running.push(await continueOn(other, `running_${number}`, dump))
      copies[`while it dispatches (${number})`] = running.at(-1) as Continued
    }
    reportProgress('restore: rebased while it dispatches')
    const rebased = await rebaseWhileRunning(other, 'rebased', size.rebases, random)
    const [calm, wild] = [[once, twice], running]
    for (const copy of Object.values(copies)) {
      for (const { examples } of Object.values(copy.judgements))
        for (const each of examples) reportProgress(`restore: ${each}`)
    }
    return {
      results: [
        ...Object.entries(copies).map(([dump, copy]) => rowOf(dump, copy)),
        { dump: 'none of it', deliveries: none.deliveries, missing: none.missing, 'out of order': none.outOfOrder },
        { dump: 'all of it', deliveries: all.deliveries, missing: all.missing, 'out of order': all.outOfOrder },
        {
          dump: 'no dump, rebased while it dispatches',
          deliveries: rebased.deliveries,
          duplicates: rebased.duplicates,
          missing: rebased.missing,
          'out of order': rebased.outOfOrder,
        },
        {
          dump: 'control: cursors kept by hand',
          deliveries: control.deliveries,
          missing: control.missing,
          'out of order': control.outOfOrder,
        },
      ],
      goals: [
        ...goalsOf(Object.values(copies)),
        goal('quiet dump: windows cut in the middle', Math.min(...calm.map((copy) => copy.cutWindows)), '>=', 1),
        goal('quiet dump: streams that wait for an operator', Math.min(...calm.map((copy) => copy.waiting)), '>=', 2),
        goal('quiet dump: events that came twice', total(calm, 'duplicates'), '=', 0),
        goal('running dump: events that came twice, and may', total(wild, 'duplicates'), '>=', 1),
        goal('none: events that should not have come', none.tooMuch, '=', 0),
        goal('none: missing, or out of order', none.missing + none.outOfOrder, '=', 0),
        goal('all: missing, out of order, or twice', all.missing + all.outOfOrder + all.duplicates, '=', 0),
        goal('rebased while it dispatches: missing, or out of order', rebased.missing + rebased.outOfOrder, '=', 0),
        // What is left out at the end of a stream is missing, and no gap.
        goal(
          'control, cursors kept by hand: events that did not arrive, or out of order',
          control.missing + control.outOfOrder,
          '>=',
          1,
        ),
      ],
    }
  } finally {
    await Promise.all(servers.map((server) => server.stop('immediate')))
    await rm(folder, { recursive: true, force: true })
  }
}

type Counted = 'deliveries' | 'diverged' | 'duplicates' | 'missing' | 'outOfOrder' | 'rolledBack' | 'unexplained'

function total(copies: readonly Continued[], what: Counted): number {
  return sum(copies.flatMap(({ judgements }) => Object.values(judgements).map((each) => each[what])))
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((all, each) => all + each, 0)
}

function rowOf(dump: string, copy: Continued): ResultRow {
  return {
    dump,
    'delivered before': copy.delivered,
    'put aside': copy.putAside,
    deliveries: total([copy], 'deliveries'),
    duplicates: total([copy], 'duplicates'),
    missing: total([copy], 'missing'),
    'out of order': total([copy], 'outOfOrder'),
  }
}

/** What holds for every copy on which `undelivered` was chosen. */
function goalsOf(copies: readonly Continued[]): Goal[] {
  const all = (what: Counted): number => total(copies, what)
  const refused = sum(copies.map((copy) => copy.refused))
  return [
    goal('restored: dispatchers refused by name, three on each copy', refused, '=', 3 * copies.length),
    goal('restored: sinks that were reached before the rebase', sum(copies.map((copy) => copy.reached)), '=', 0),
    goal('restored: parked too much or too little', sum(copies.map((copy) => copy.putAsideWrongly)), '=', 0),
    goal('restored: parked by a second rebase', sum(copies.map((copy) => copy.putAsideAgain)), '=', 0),
    goal('restored: of streams that wait, sent too early', sum(copies.map((copy) => copy.tooEarly)), '=', 0),
    goal(
      'restored: segments emptied afterwards, on each copy',
      Math.min(...copies.map((copy) => copy.dropped)),
      '>=',
      1,
    ),
    goal('restored: first deliveries out of order, or with a gap', all('outOfOrder'), '=', 0),
    goal('restored: numbers that came with two ids', all('diverged'), '=', 0),
    goal('restored: events that did not arrive', all('missing'), '=', 0),
    goal('restored: events that were rolled back and arrived', all('rolledBack'), '=', 0),
    goal('restored: twice although the cursors in the dump were past it', all('unexplained'), '=', 0),
  ]
}

async function standbys(size: Size, reportProgress: ReportProgress, random: Random): Promise<Findings> {
  const found = await failOver(size.failovers, reportProgress, random)
  for (const example of found.examples) reportProgress(`restore: ${example}`)
  return {
    results: [
      {
        dump: `no dump, ${found.failovers} promoted`,
        deliveries: found.deliveries,
        duplicates: found.duplicates,
        missing: found.thereAndNotSent,
        'out of order': found.outOfOrder,
      },
    ],
    goals: [
      goal('standby: dispatchers refused by name', found.refused, '=', size.failovers),
      goal('standby: sinks that were reached', found.reached, '=', 0),
      goal('promoted: the timeline', found.timeline, '=', 1 + size.failovers),
      goal('promoted: acknowledged events that are gone', found.lost, '=', 0),
      goal('promoted: deliveries whose event is not there', found.sentAndNotThere, '=', 0),
      goal('promoted: events that did not arrive', found.thereAndNotSent, '=', 0),
      goal('promoted: first deliveries out of order, or with a gap', found.outOfOrder, '=', 0),
      goal('promoted: numbers that came with two ids', found.diverged, '=', 0),
      goal('promoted: events that were rolled back and arrived', found.rolledBack, '=', 0),
    ],
  }
}
