import { pathToFileURL } from 'node:url'
import type { Isolation } from 'pg-lockstep'
import { goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import { type BuiltLibrary, buildLibrary } from '../tools/previousRelease/buildLibrary.ts'
import { nodeArguments } from '../tools/server/nodeArguments.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import type { AgainstDone, AgainstDriver, AgainstTask } from './againstProcess.ts'
import type { Bench, RunSize } from './bench.ts'
import { createDatabase } from './contenders/arena.sql.ts'
import { interleave } from './harness/interleave.ts'
import { medianInterval } from './harness/medianInterval.ts'
import { openPool } from './harness/openPool.ts'
import { type RequestProcess, startRequestProcess } from './harness/requestProcess.ts'

interface Size {
  readonly lockPairs: number
  readonly locked: number
  readonly enqueuePairs: number
  readonly enqueued: number
  readonly drainPairs: number
  readonly drained: number
}

const SIZES: Readonly<Record<RunSize, Size>> = {
  full: { lockPairs: 60, locked: 250, enqueuePairs: 60, enqueued: 1500, drainPairs: 30, drained: 100_000 },
  quick: { lockPairs: 8, locked: 120, enqueuePairs: 6, enqueued: 400, drainPairs: 6, drained: 20_000 },
  smoke: { lockPairs: 1, locked: 10, enqueuePairs: 1, enqueued: 24, drainPairs: 1, drained: 2000 },
}

const AT_LEAST = 0.95
/** How a process was compiled and where its memory lies can make it a few percent faster until it ends. So there are several processes. */
const PAIRS_PER_PROCESS = 10
const PROCESS = new URL('againstProcess.ts', import.meta.url)
/** The library of this checkout, as `nodeArguments()` has it: built, or its source. */
const CURRENT = pathToFileURL(nodeArguments(new URL('../src/index.ts', import.meta.url)).at(-1) as string)
const DRIVERS: readonly AgainstDriver[] = ['pg', 'postgres']
const ISOLATIONS: readonly Isolation[] = ['read committed', 'serializable']

interface Row {
  readonly what: string
  readonly flush: 'on' | 'off'
  readonly task: AgainstTask
  readonly pairs: number
}

/** What this checkout is as against an older commit: both take turns, on one server, each with a database and a process of its own. */
export function against(revision: string): Bench {
  return {
    name: 'against',
    about: `the rows of locks, enqueue and drain, in turns with the library of ${revision}`,
    baselines: { [revision]: 'the library of that commit, compiled into .lockstep/libraries' },
    async run(thoroughness, reportProgress) {
      const size = SIZES[thoroughness]
      const rows = rowsOf(size)
      reportProgress(`against: building ${revision}`)
      const library = buildLibrary(revision)
      const server = await startPostgres({ durable: true, settings: { max_wal_size: '4GB' } })
      const admin = openPool(server.url(), 1)
      const sides: Side[] = []
      try {
        for (const [name, entry] of [
          ['old', library.entry],
          ['new', CURRENT],
        ] as const) {
          await admin.query(createDatabase(name))
          sides.push(new Side(entry, server.url(name)))
        }
        const [old, current] = sides as [Side, Side]
        for (const side of sides) {
          await side.ask({ task: 'install' })
          await side.ask({ task: 'fill', count: size.drained })
        }
        const results: ResultRow[] = []
        const goals: Goal[] = []
        let [done, all] = [0, rows.reduce((sum, { pairs }) => sum + 2 * (pairs + 1), 0)]
        for (const { what, flush, task, pairs } of rows) {
          await admin.query(`ALTER SYSTEM SET synchronous_commit = ${flush}`)
          await admin.query('SELECT pg_reload_conf()')
          const play = (side: Side) => async (round: number) => ({ rate: await side.rate(task, round) })
          const rounds = await interleave({ old: play(old), new: play(current) }, pairs, (text) =>
            reportProgress(`against: ${what}, ${text}`, done++ / all),
          )
          const ratio = rounds.ratio('new', 'old', 'rate')
          const { low, high } = medianInterval(ratio.samples)
          results.push({
            what,
            synchronous_commit: flush,
            'old/s': Math.round(rounds.of('old', 'rate').median),
            'new/s': Math.round(rounds.of('new', 'rate').median),
            'new/old': ratio.median,
            '95 %': `${low.toFixed(3)} to ${high.toFixed(3)}`,
            pairs,
          })
          goals.push(
            goal(`${what}, synchronous_commit ${flush}: times ${short(library)}`, ratio.median, '>=', AT_LEAST),
          )
        }
        return { results, goals }
      } finally {
        for (const side of sides) await side.end()
        await admin.end()
        await server.stop()
      }
    },
  }
}

function short({ commit }: BuiltLibrary): string {
  return commit.slice(0, 7)
}

function rowsOf(size: Size): Row[] {
  const rows: Row[] = []
  for (const flush of ['on', 'off'] as const) {
    for (const isolation of ISOLATIONS) {
      for (const driver of DRIVERS) {
        const task = { task: 'locks', driver, isolation, count: size.locked } as const
        rows.push({ what: `lock, ${driver}, ${isolation}`, flush, task, pairs: size.lockPairs })
      }
    }
  }
  for (const driver of DRIVERS) {
    const task = { task: 'enqueue', driver, count: size.enqueued } as const
    rows.push({ what: `enqueue, ${driver}`, flush: 'on', task, pairs: size.enqueuePairs })
  }
  for (const driver of DRIVERS) {
    const task = { task: 'drain', driver, count: size.drained } as const
    rows.push({ what: `drain, ${driver}`, flush: 'on', task, pairs: size.drainPairs })
  }
  return rows
}

/** One of the two libraries, in one process after the other. */
class Side {
  readonly #entry: URL
  readonly #url: string
  #process: Promise<RequestProcess> | undefined

  constructor(entry: URL, url: string) {
    this.#entry = entry
    this.#url = url
  }

  async ask(task: AgainstTask): Promise<AgainstDone> {
    this.#process ??= startRequestProcess(process.execPath, PROCESS, [this.#entry.href, this.#url])
    return (await this.#process).ask<AgainstDone>(task)
  }

  /** What it does in a second. Round 0 does not count, and neither does the first turn of a new process. */
  async rate(task: AgainstTask, round: number): Promise<number> {
    if (round > 1 && round % PAIRS_PER_PROCESS === 1) {
      await this.end()
      await this.ask(task)
    }
    const { count, ms } = await this.ask(task)
    return (count / ms) * 1000
  }

  async end(): Promise<void> {
    await (await this.#process)?.end()
    this.#process = undefined
  }
}
