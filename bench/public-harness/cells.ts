import type { RunSize } from '../bench.ts'

/** One scenario of the harness, with the load that its own sweep gives it (scripts/run_full_sweep.sh). */
export interface Cell {
  readonly name: string
  readonly kind: 'chaos' | 'pressure' | 'rate'
  /** By name, or its phases. */
  readonly phases: { readonly scenario: string } | { readonly phases: readonly string[] }
  readonly mode: 'fixed' | 'depth-target'
  /** Jobs a second of each replica. */
  readonly rate: number
  readonly replicas: number
  readonly workers: number
}

const chaos = (scenario: string, rate: number, replicas: number): Cell => ({
  name: scenario.replace('chaos_', '').replaceAll('_', ' '),
  kind: 'chaos',
  phases: { scenario },
  mode: 'fixed',
  rate,
  replicas,
  workers: 32,
})

const pressure = (name: string, rate: number, workers: number, phases: readonly string[]): Cell => ({
  name,
  kind: 'pressure',
  phases: { phases: ['warmup=warmup:30s', 'clean_1=clean:60s', ...phases] },
  mode: 'fixed',
  rate,
  replicas: 1,
  workers,
})

const rate = (workers: number): Cell => ({
  name: `rate, ${workers} workers`,
  kind: 'rate',
  phases: { phases: ['warmup=warmup:30s', 'clean=clean:180s'] },
  mode: 'depth-target',
  rate: 50_000,
  replicas: 1,
  workers,
})

const CHAOS: readonly Cell[] = [
  chaos('chaos_crash_recovery', 300, 2),
  chaos('chaos_repeated_kills', 300, 2),
  chaos('chaos_postgres_restart', 600, 1),
  chaos('chaos_pg_backend_kill', 600, 1),
  chaos('chaos_pool_exhaustion', 600, 1),
]

const PRESSURE: readonly Cell[] = [
  pressure('idle in transaction', 800, 32, ['idle_1=idle-in-tx:240s', 'recovery_1=clean:180s']),
  pressure('sustained high load', 800, 32, ['pressure_1=high-load:240s', 'recovery_1=clean:120s']),
  pressure('active readers', 800, 32, ['readers_1=active-readers:240s', 'recovery_1=clean:120s']),
  pressure('event burst', 1200, 64, ['pressure_1=high-load:300s', 'recovery_1=clean:240s']),
]

export interface Size {
  readonly cells: readonly Cell[]
  /** Of the harness's durations. */
  readonly scale: Readonly<Record<Cell['kind'], number>>
  readonly leastSeconds: number
  /** Of the harness's jobs a second, in cells with a fixed rate. */
  readonly load: number
  readonly sampleSeconds: number
}

export const SIZES: Readonly<Record<RunSize, Size>> = {
  full: {
    cells: [...[4, 16, 64, 128, 256].map(rate), ...CHAOS, ...PRESSURE],
    scale: { chaos: 1, pressure: 1, rate: 1 },
    leastSeconds: 1,
    load: 1,
    sampleSeconds: 5,
  },
  quick: {
    cells: [rate(64), ...CHAOS, ...PRESSURE],
    scale: { chaos: 0.15, pressure: 0.07, rate: 0.12 },
    leastSeconds: 8,
    load: 0.25,
    sampleSeconds: 2,
  },
  smoke: {
    cells: [rate(16), ...CHAOS.slice(0, 1)],
    scale: { chaos: 0.1, pressure: 0.1, rate: 0.05 },
    leastSeconds: 6,
    load: 0.25,
    sampleSeconds: 1,
  },
}
