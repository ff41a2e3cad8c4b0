import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, open as openFile, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { areInstalled, install } from '../../tools/dependencies.ts'
import { goal, type Goal, type ResultRow } from '../../tools/judge/report.ts'
import { freePort } from '../../tools/server/freePort.ts'
import { nodeArguments } from '../../tools/server/nodeArguments.ts'
import type { Bench } from '../bench.ts'
import { ensurePeers, peerNode } from '../harness/peers.ts'
import { type Cell, type Size, SIZES } from './cells.ts'

/** Debian's: the harness needs the extension pgstattuple, which the servers of the tests do not have. */
const PG_BIN = '/usr/lib/postgresql/15/bin'
const PYTHON = '/usr/bin/python3'
const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const SOURCE = join(ROOT, 'bench', 'public-harness')
/** Beside its phases a cell starts and stops PostgreSQL and the adapters, and is audited. */
const MORE_MS = 240_000
/** The same for all: the harness's own sweep gives it to pgque, and 128 to the others. */
const RATE_BATCH = '1000'

/** A system as the harness runs it. */
interface System {
  readonly name: string
  readonly system: string
  readonly database: string
  readonly manifest: string
  readonly argv: readonly string[]
  readonly cwd: string
  readonly env: Readonly<Record<string, string>>
  /** Whether it is measured in the cells that have no fault alone. */
  readonly rateOnly?: boolean
  readonly audit?: readonly string[]
}

interface PhaseSummary {
  readonly metrics: Readonly<Record<string, { readonly median: number }>>
  readonly chaos_recovery_time_s?: number | null
}

interface Audit {
  readonly enqueued: number
  readonly lost: number
  readonly twice: number
  readonly disordered: number
  readonly parked: number
}

/** What one cell has shown of one system. Undefined: the harness gave up on it. */
interface Outcome {
  readonly phases: Readonly<Record<string, PhaseSummary>>
  readonly seconds: Readonly<Record<string, number>>
  readonly audit: Audit | null
}

/** Undefined: all. */
export interface Selection {
  readonly systems?: readonly string[] | undefined
  readonly kinds?: readonly string[] | undefined
}

/** The scenarios of github.com/hardbyte/postgresql-job-queue-benchmarking, from a checkout of it. */
export function publicHarness(checkout: string, { systems: only, kinds }: Selection = {}): Bench {
  return {
    name: 'public-harness',
    about: 'the scenarios of postgresql-job-queue-benchmarking: rate, faults and pressure',
    baselines: {
      harness: `the checkout in ${checkout}, without Docker: bench/public-harness/README.md`,
      'pg-boss': 'its adapter of the harness, which paces itself',
      pgque: 'its adapter of the harness, with the submodule pgque-bench/vendor/pgque',
    },
    async run(thoroughness, reportProgress) {
      const whole = SIZES[thoroughness]
      const size = { ...whole, cells: whole.cells.filter(({ kind }) => kinds?.includes(kind) !== false) }
      const systems = systemsOf(resolve(checkout)).filter(({ system }) => only?.includes(system) !== false)
      if (size.cells.length === 0 || systems.length === 0) throw new Error('There is no such system, or no such cell.')
      const outcomes = new Map<string, Outcome | undefined>()
      let done = 0
      const all = size.cells.length * systems.length
      for (const cell of size.cells) {
        for (const system of systems) {
          reportProgress(`public-harness: ${cell.name}, ${system.name}`, done++ / all)
          if (system.rateOnly === true && cell.kind !== 'rate') continue
          outcomes.set(nameOf(cell, system), await runCell(resolve(checkout), cell, system, size))
        }
      }
      return report(size.cells, systems, outcomes)
    },
  }
}

function systemsOf(checkout: string): System[] {
  const missing = [
    ...(existsSync(join(checkout, 'bench_harness')) ? [] : [`a checkout of the harness in ${checkout}`]),
    ...(existsSync(join(PG_BIN, 'initdb')) ? [] : ['postgresql-15']),
    ...(existsSync('/usr/lib/python3/dist-packages/psycopg') ? [] : ['python3-psycopg']),
  ]
  if (missing.length > 0)
    throw new Error(`The harness needs ${missing.join(', ')}: see bench/public-harness/README.md.`)
  ensurePeers()
  const pgBoss = join(checkout, 'pgboss-bench')
  if (!areInstalled(pgBoss)) install(pgBoss)
  const pgque = join(checkout, 'pgque-bench')
  const lockstep: System = {
    name: 'Lockstep',
    system: 'lockstep',
    database: 'lockstep_bench',
    manifest: join(SOURCE, 'adapter.json'),
    argv: [peerNode(), ...nodeArguments(new URL('adapter.ts', import.meta.url))],
    cwd: ROOT,
    env: { LOCKSTEP_MANIFEST: join(SOURCE, 'adapter.json') },
    audit: [peerNode(), ...nodeArguments(new URL('audit.ts', import.meta.url))],
  }
  const { audit: _, ...unaudited } = lockstep
  return [
    lockstep,
    {
      ...unaudited,
      name: 'Lockstep, dispatcher',
      env: { ...lockstep.env, LOCKSTEP_WORKER: 'dispatcher' },
      rateOnly: true,
    },
    ...(existsSync(join(pgque, 'vendor/pgque/sql/pgque.sql'))
      ? [
          {
            name: 'pgque',
            system: 'pgque',
            database: 'pgque_bench',
            manifest: join(pgque, 'adapter.json'),
            argv: [PYTHON, 'main.py'],
            cwd: pgque,
            env: {},
          },
        ]
      : []),
    {
      name: 'pg-boss',
      system: 'pgboss',
      database: 'pgboss_bench',
      manifest: join(pgBoss, 'adapter.json'),
      argv: [peerNode(), 'main.js'],
      cwd: pgBoss,
      // It never reads the harness's pace, and a pipe that is full blocks the harness when it stops.
      env: { PRODUCER_PACING: 'adapter' },
    },
  ]
}

function nameOf(cell: Cell, { name }: System): string {
  return `${cell.name}, ${name}`
}

async function runCell(checkout: string, cell: Cell, system: System, size: Size): Promise<Outcome | undefined> {
  const directory = await mkdtemp(join(tmpdir(), 'lockstep-harness-'))
  const log = await openFile(join(directory, 'harness.log'), 'w')
  const audited = system.audit !== undefined && cell.kind !== 'rate'
  const env = {
    ...system.env,
    ...(cell.kind === 'rate' ? { PRODUCER_BATCH_MAX: RATE_BATCH } : {}),
    ...(audited ? { LOCKSTEP_AUDIT: '1' } : {}),
  }
  const { system: name, database, manifest, argv, cwd } = system
  const told = {
    checkout,
    directory,
    pgBin: PG_BIN,
    port: await freePort(),
    system: name,
    database,
    manifest,
    argv,
    cwd,
    env,
    ...cell.phases,
    scale: size.scale[cell.kind],
    leastSeconds: size.leastSeconds,
    sampleSeconds: size.sampleSeconds,
    rate: Math.round(cell.rate * (cell.mode === 'fixed' ? size.load : 1)),
    mode: cell.mode,
    depth: 4000,
    workers: cell.workers,
    replicas: cell.replicas,
    ...(audited ? { audit: system.audit } : {}),
  }
  const child = spawn(PYTHON, [join(SOURCE, 'harness.py'), JSON.stringify(told)], {
    stdio: ['pipe', 'pipe', log.fd],
    // It ends with its servers when this pipe is closed, or after this time.
    timeout: size.scale[cell.kind] * 900_000 + MORE_MS,
  })
  try {
    let out = ''
    child.stdout?.setEncoding('utf8').on('data', (text: string) => (out += text))
    const [code] = (await once(child, 'close')) as [number | null]
    if (code === 0) return JSON.parse(out.trim().split('\n').at(-1) ?? '') as Outcome
    const said = await readFile(join(directory, 'harness.log'), 'utf8')
    process.stderr.write(`\n${nameOf(cell, system)} was given up (${code ?? 'too late'}):\n${said.slice(-1500)}\n`)
    return undefined
  } finally {
    await log.close()
    await rm(directory, { recursive: true, force: true, maxRetries: 5 })
  }
}

function report(
  cells: readonly Cell[],
  systems: readonly System[],
  outcomes: ReadonlyMap<string, Outcome | undefined>,
): { results: ResultRow[]; goals: Goal[] } {
  const results: ResultRow[] = []
  const rates = new Map<string, number>()
  let [recovered, finished, lost, twice, disordered, parked] = [0, 0, 0, 0, 0, 0]
  for (const cell of cells) {
    for (const system of systems) {
      if (!outcomes.has(nameOf(cell, system))) continue
      const outcome = outcomes.get(nameOf(cell, system))
      const row = rowOf(cell, system, outcome)
      results.push(row)
      if (cell.kind === 'rate') rates.set(system.name, Math.max(rates.get(system.name) ?? 0, Number(row['clean/s'])))
      if (system.audit === undefined || outcome === undefined || cell.kind === 'rate') continue
      if (cell.kind === 'pressure') finished++
      else if (row['ended'] === 'recovered') recovered++
      lost += outcome.audit?.lost ?? 1
      twice += outcome.audit?.twice ?? 1
      disordered += outcome.audit?.disordered ?? 1
      parked += outcome.audit?.parked ?? 1
    }
  }
  const of = (kind: Cell['kind']): number => cells.filter((each) => each.kind === kind).length
  const [ours, theirs] = [
    Math.max(rates.get('Lockstep') ?? 0, rates.get('Lockstep, dispatcher') ?? 0),
    rates.get('pgque'),
  ]
  return {
    results,
    goals: [
      goal('faults from which Lockstep recovers', recovered, '>=', of('chaos')),
      goal('pressure that Lockstep finishes', finished, '>=', of('pressure')),
      goal('jobs lost', lost, '=', 0),
      goal('jobs done twice', twice, '=', 0),
      goal('jobs of a key out of order', disordered, '=', 0),
      goal('keys that stopped', parked, '=', 0),
      ...(theirs === undefined ? [] : [goal("jobs/s, times pgque's", ours / Math.max(1, theirs), '>=', 1)]),
    ],
  }
}

/** The harness's own medians: of the first phase that counts, of those in the middle, and of the last. */
function rowOf(cell: Cell, system: System, outcome: Outcome | undefined): ResultRow {
  const labels = Object.keys(outcome?.seconds ?? {}).filter((label) => label !== 'warmup')
  const [first, last] = [labels[0], labels.at(-1)]
  const median = (label: string | undefined, metric: string): number | string =>
    outcome?.phases[label ?? '']?.metrics[metric]?.median ?? ''
  const middle = labels.slice(1, -1).map((label) => Number(median(label, 'completion_rate') || 0))
  const seconds = outcome?.phases[last ?? '']?.chaos_recovery_time_s ?? undefined
  return {
    cell: cell.name,
    system: system.name,
    'clean/s': median(first, 'completion_rate'),
    'fault/s': middle.length === 0 ? '' : middle.reduce((sum, each) => sum + each, 0) / middle.length,
    'after/s': cell.kind === 'rate' ? '' : median(last, 'completion_rate'),
    'clean p99 ms': median(first, 'claim_p99_ms'),
    'after p99 ms': cell.kind === 'rate' ? '' : median(last, 'claim_p99_ms'),
    ended: endedOf(cell, outcome, seconds),
    'lost, twice, disordered': outcome?.audit
      ? `${outcome.audit.lost}, ${outcome.audit.twice}, ${outcome.audit.disordered}`
      : '',
  }
}

function endedOf(cell: Cell, outcome: Outcome | undefined, backAfterSeconds: number | undefined): string {
  if (outcome === undefined) return 'given up'
  if (cell.kind !== 'chaos') return 'finished'
  return backAfterSeconds === undefined ? 'not recovered' : 'recovered'
}
