import type { Goal, ResultRow } from '../tools/judge/report.ts'

/** How thoroughly a bench is run: `smoke` shows that it works, `quick` ends within a minute, `full` is what is published. */
export type RunSize = 'full' | 'quick' | 'smoke'

/** A goal beside the physical limit: what a program of the fewest possible messages and flushes reaches in the same run. */
export interface Limit {
  readonly what: string
  readonly unit: string
  readonly lockstep: number
  /** The same, of the program of the limit. */
  readonly limit: number
  /** What that program sends and flushes. */
  readonly program: string
  readonly goal: Goal
}

/** What a bench measured. */
export interface Measured {
  readonly results: readonly ResultRow[]
  readonly goals: readonly Goal[]
  readonly limits?: readonly Limit[]
}

/** Says what is being done, and how much of it is done where that is known: between 0 and 1. */
export type ReportProgress = (text: string, share?: number) => void

/** A claim about time. Every goal is a ratio against a baseline in the same run, or a count. */
export interface Bench {
  readonly name: string
  readonly about: string
  /** What it is compared with and how that is set, as text. */
  readonly baselines: Readonly<Record<string, string>>
  run(thoroughness: RunSize, reportProgress: ReportProgress): Promise<Measured>
  /** The same, and writes what others calculate with into a file. */
  keep?(thoroughness: RunSize, reportProgress: ReportProgress, file: string): Promise<Measured>
}
