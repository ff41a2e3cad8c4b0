import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Measured, RunSize } from '../bench.ts'
import type { Machine } from './machine.ts'

/** A bench and what it gave. */
export interface BenchRecord extends Measured {
  readonly name: string
  readonly seconds: number
}

/** A whole run, as it is kept in `bench/results`. */
export interface RunRecord {
  readonly date: string
  readonly thoroughness: RunSize
  readonly machine: Machine
  readonly benches: readonly BenchRecord[]
}

const RESULTS = join(import.meta.dirname, '..', 'results')

/** Keeps it under its date. Gives the path. */
export function keepRecord(record: RunRecord, folder = RESULTS): string {
  mkdirSync(folder, { recursive: true })
  const path = join(folder, `${record.date.slice(0, 10)}.json`)
  writeFileSync(path, `${JSON.stringify(record, undefined, 2)}\n`)
  return path
}
