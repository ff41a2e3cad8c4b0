import { once as event } from 'node:events'
import { goal, type ResultRow } from '../../tools/judge/report.ts'
import { type KillableProcess, startProcess } from '../faults/killableProcess.ts'
import type { OnceAnswer } from './processes/onceProcess.ts'
import { type DriverName, type Lab, openLab, type Route } from './lab.ts'
import { attack, type ReportProgress } from './attack.ts'
import { CREATE, CREATE_TABLE, DOUBLES, FIND } from './once.sql.ts'
import { type ExternalSize, playExternal } from './onceExternal.ts'

interface Size extends ExternalSize {
  readonly keys: number
  readonly callersEach: number
}

/** Two of each driver; one of them behind the pooler. */
const PROCESSES: readonly { driver: DriverName; route: Route }[] = [
  { driver: 'pg', route: 'direct' },
  { driver: 'pg', route: 'pooled' },
  { driver: 'postgres', route: 'direct' },
  { driver: 'postgres', route: 'direct' },
]

/**
 * A hundred calls for one key at once, from four processes, key after key. For each key one row, one caller that created it, and
 * the same id for all. The same check and insert without the lock must create doubles. Then `onceExternal`, see onceExternal.ts.
 */
export const once = attack<Size>({
  name: 'once',
  about: 'a hundred calls of once() for one key from four processes: one creates, all get the same',
  full: { keys: 200, callersEach: 25, longKeys: 200, strikes: 40 },
  small: { keys: 4, callersEach: 25, longKeys: 6, strikes: 1 },
  async run(size, reportProgress) {
    const lab = await openLab()
    try {
      await lab.admin.query(CREATE_TABLE)
      const result = await withOnce(lab, size, reportProgress)
      const doubled = (await lab.admin.query(DOUBLES)).rowCount ?? -1
      reportProgress('once: without the lock')
      const control = await withoutLock(lab)
      const external = await playExternal(lab, size, reportProgress)
      const results: ResultRow[] = [{ form: 'once', ...result, 'keys with two rows': doubled }, external.row]
      return {
        results,
        goals: [
          ...external.goals,
          goal('calls', result.calls, '=', size.keys * size.callersEach * PROCESSES.length),
          goal('keys with more or less than one creator', result['not one creator'], '=', 0),
          goal('keys whose callers got different ids', result['different ids'], '=', 0),
          goal('keys with two rows', doubled, '=', 0),
          goal('control, the same without the lock: keys with two rows', control, '>=', 1),
        ],
      }
    } finally {
      await lab.close()
    }
  },
})

async function withOnce(
  lab: Lab,
  size: Size,
  reportProgress: ReportProgress,
): Promise<{ keys: number; calls: number; 'not one creator': number; 'different ids': number }> {
  const processes = PROCESSES.map(({ driver, route }) =>
    startProcess(new URL('processes/onceProcess.ts', import.meta.url), [
      driver,
      lab.url(route),
      String(size.callersEach),
    ]),
  )
  try {
    await Promise.all(processes.map(({ child }) => event(child, 'message')))
    const result = { keys: size.keys, calls: 0, 'not one creator': 0, 'different ids': 0 }
    for (let number = 0; number < size.keys; number++) {
      reportProgress(`once: key ${number + 1} of ${size.keys}`)
      const answers = await askAll(processes, `S${number}`)
      result.calls += answers.length
      if (answers.filter(({ created }) => created).length !== 1) result['not one creator']++
      if (new Set(answers.map(({ id }) => id)).size !== 1) result['different ids']++
    }
    return result
  } finally {
    await Promise.all(processes.map((each) => each.kill()))
  }
}

async function askAll(processes: readonly KillableProcess[], symbol: string): Promise<OnceAnswer[]> {
  return (await Promise.all(processes.map((each) => each.ask<OnceAnswer[]>(symbol)))).flat()
}

/** Look, then insert, as two paths without a common lock do. */
async function withoutLock(lab: Lab): Promise<number> {
  await lab.admin.query(CREATE_TABLE)
  const pool = lab.pool(20)
  const create = async (symbol: string): Promise<void> => {
    const { rowCount } = await pool.query(FIND, [symbol])
    if (rowCount === 0) await pool.query(CREATE, [symbol])
  }
  for (let number = 0; number < 5; number++) {
    await Promise.all(Array.from({ length: 20 }, () => create(`S${number}`)))
  }
  return (await lab.admin.query(DOUBLES)).rowCount ?? 0
}
