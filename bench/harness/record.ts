import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Measured, RunSize } from '../bench.ts'
import type { Machine } from './machine.ts'

/** A bench and what it gave. */
export interface BenchRecord extends Measured {
  readonly name: string
  readonly seconds: number
}

/** The runs of a day, as they are kept in `bench/results`. */
export interface RunRecord {
  readonly date: string
  readonly thoroughness: RunSize
  readonly machine: Machine
  readonly benches: readonly BenchRecord[]
}

const RESULTS = join(import.meta.dirname, '..', 'results')

/** Keeps it under its date, beside what other benches of that day have given. Returns the path. */
export function keepRecord(record: RunRecord, folder = RESULTS): string {
  mkdirSync(folder, { recursive: true })
  const path = join(folder, `${record.date.slice(0, 10)}.json`)
  const before = existsSync(path) ? readRecord(path).benches : []
  const replaced = new Set(record.benches.map(({ name }) => name))
  const benches = [...before.filter(({ name }) => !replaced.has(name)), ...record.benches]
  writeFileSync(path, `${JSON.stringify({ ...record, benches }, undefined, 2)}\n`)
  return path
}

export function readRecord(path: string): RunRecord {
  return JSON.parse(readFileSync(path, 'utf8')) as RunRecord
}
