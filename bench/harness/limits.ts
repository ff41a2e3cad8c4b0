import type { ResultRow } from '../../tools/judge/report.ts'
import type { Limit } from '../bench.ts'
import type { BenchRecord } from './record.ts'

/** The goals of all benches that have a physical limit, with that limit beside them. */
export function limitRows(benches: readonly Pick<BenchRecord, 'name' | 'limits'>[]): ResultRow[] {
  return benches.flatMap(({ name, limits = [] }) => limits.map((limit) => rowOf(name, limit)))
}

function rowOf(bench: string, { what, unit, lockstep, limit, program, goal }: Limit): ResultRow {
  return {
    bench,
    what,
    unit,
    Lockstep: lockstep,
    limit,
    'the program of the limit': program,
    goal: goal.name,
    value: goal.value,
    wanted: goal.goal,
    '': goal.holds ? 'holds' : 'does not hold',
  }
}
