import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { type Isolation, key, Lockstep } from 'pg-lockstep'
import * as channels from 'pg-lockstep/observe'
import { lockstepMetrics } from 'pg-lockstep/prometheus'
import * as prometheus from 'prom-client'
import { goal, type Goal, type ResultRow } from '../tools/judge/report.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import type { Bench, RunSize } from './bench.ts'
import { compare, type Comparison, type Contender } from './compare.ts'
import { showSpread } from './harness/spread.ts'
import { ADD, CREATE } from './locks.sql.ts'
import { openPool } from './harness/openPool.ts'

/**
 * Short rounds in many pairs: two percent are less than what the machine does from one second to the next. A listener that begins or
 * ceases to listen makes Node compile the transaction again, so each comparison warms both sides up.
 */
const SIZES: Readonly<Record<RunSize, { warmUp: number; pairs: number; count: number }>> = {
  full: { warmUp: 2000, pairs: 700, count: 20 },
  quick: { warmUp: 800, pairs: 220, count: 20 },
  smoke: { warmUp: 5, pairs: 10, count: 5 },
}

const NO_LISTENERS = 'no listeners'
const METRICS = 'prom-client metrics'
const BOUND: Readonly<Record<string, number>> = { [NO_LISTENERS]: 1.02, [METRICS]: 1.05 }

/** Without the flush, where there is the least to hide behind; once with it. */
const ROWS: readonly { isolation: Isolation; flush: 'on' | 'off' }[] = [
  { isolation: 'read committed', flush: 'off' },
  { isolation: 'serializable', flush: 'off' },
  { isolation: 'read committed', flush: 'on' },
]

/**
 * What listening costs. The baseline is the library itself, copied, with the module of the channels replaced by one in which
 * no subscriber ever listens. The copy is of `dist`, as it is published; tests, which run on the source, copy that.
 */
export function observeAgainst(library: 'dist' | 'src'): Bench {
  return {
    name: 'observe',
    about: 'a locked transaction unheard and with prom-client metrics, against the library with its events cut out',
    baselines: { [`${library}/observe/events in a copy of the library`]: withoutChannels() },
    async run(thoroughness, reportProgress) {
      const { warmUp, pairs, count } = SIZES[thoroughness]
      const server = await startPostgres({ durable: true })
      const copy = await copyWithoutEvents(library)
      const pool = openPool(server.url(), 4)
      const results: ResultRow[] = []
      const goals: Goal[] = []
      try {
        await new Lockstep(pool).migrate()
        await pool.query(CREATE)
        for (const { isolation, flush } of ROWS) {
          await pool.query(`ALTER SYSTEM SET synchronous_commit = ${flush}`)
          await pool.query('SELECT pg_reload_conf()')
          for (const listening of [NO_LISTENERS, METRICS]) {
            reportProgress(`observe: ${isolation}, synchronous_commit ${flush}, ${listening}`, results.length / 6)
            const baseline = locked(new copy.Lockstep(pool), isolation)
            const candidate = locked(new Lockstep(pool), isolation)
            const measure = async (): Promise<Comparison> => {
              await baseline(warmUp)
              await candidate(warmUp)
              return compare(baseline, candidate, pairs, count)
            }
            // Channels belong to the process: who listens is there for the time of one comparison only.
            const heard = listening === METRICS ? await withMetrics(measure) : undefined
            const { baselineUs, candidateUs, ratio, spread } = heard?.value ?? (await measure())
            const row = { isolation, synchronous_commit: flush, listening }
            results.push({
              ...row,
              'without events µs': baselineUs,
              'with µs': candidateUs,
              ratio,
              'middle half': showSpread(spread),
            })
            const name = `${isolation}, synchronous_commit ${flush}, ${listening}`
            const bound = BOUND[listening] ?? Number.NaN
            goals.push(goal(`${name}: ratio to without events`, ratio, '<=', bound))
            if (heard === undefined) continue
            // All of the candidate's, compare()'s first round included, and none of the baseline's: each is what it is said to be.
            goals.push(goal(`${name}: transactions counted`, heard.counted, '=', warmUp + (pairs + 1) * count))
          }
        }
        return { results, goals }
      } finally {
        await pool.end()
        await server.stop()
        await copy.remove()
      }
    },
  }
}

export const observe = observeAgainst('dist')

function locked(lockstep: Pick<Lockstep, 'transaction'>, isolation: Isolation): Contender {
  return async (count) => {
    for (let number = 0; number < count; number++) {
      const id = (number % 1000) + 1
      await lockstep.transaction({ lock: key`Account:${id}`, isolation }, async (tx) => {
        await tx.query(ADD, [id])
      })
    }
  }
}

/** Runs the work with metrics on, and says how many transactions they counted. */
async function withMetrics<T>(work: () => Promise<T>): Promise<{ value: T; counted: number }> {
  const register = new prometheus.Registry()
  const stop = lockstepMetrics(prometheus, { register })
  try {
    const value = await work()
    const metric = await register.getSingleMetric('lockstep_lock_acquired_total')?.get()
    return { value, counted: metric?.values[0]?.value ?? 0 }
  } finally {
    stop()
  }
}

/** The source of a module with the same exports, in which nothing listens and nothing is published. */
function withoutChannels(): string {
  const names = Object.entries(channels).flatMap(([name, value]) => ('hasSubscribers' in value ? [name] : []))
  return `const silent = { name: '', hasSubscribers: false, publish() {}, subscribe() {}, unsubscribe() {} }
${names.map((name) => `export const ${name} = silent`).join('\n')}
export const events = {}
export const on = () => () => undefined
`
}

interface Copy {
  readonly Lockstep: typeof Lockstep
  remove(): Promise<void>
}

/** Inside the repository, where Node knows what kind of modules they are. */
async function copyWithoutEvents(library: 'dist' | 'src'): Promise<Copy> {
  const root = fileURLToPath(new URL('..', import.meta.url))
  const extension = library === 'dist' ? 'js' : 'ts'
  await mkdir(`${root}.lockstep`, { recursive: true })
  const folder = await mkdtemp(`${root}.lockstep/bench-observe-`)
  const remove = (): Promise<void> => rm(folder, { recursive: true, force: true })
  try {
    await cp(`${root}${library}`, `${folder}/${library}`, { recursive: true })
    await writeFile(`${folder}/${library}/observe/events.${extension}`, withoutChannels())
    const entry = pathToFileURL(`${folder}/${library}/index.${extension}`).href
    const module = (await import(entry)) as { readonly Lockstep: typeof Lockstep }
    return { Lockstep: module.Lockstep, remove }
  } catch (error) {
    await remove()
    throw error
  }
}
