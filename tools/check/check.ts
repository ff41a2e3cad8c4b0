import type { CommandResult } from './command.ts'

/** A fault explains one thing that is wrong, ready to print. No faults: the check is green. */
export type Fault = string

export interface CheckResult {
  readonly faults: readonly Fault[]
  /** A few words for the green line: what was looked at. A check that saw nothing must not look like one that saw all. */
  readonly note?: string
}

export interface Check {
  readonly name: string
  run(): Promise<CheckResult>
}

/** A program's exit code as a list of faults: its whole output is the fault. */
export function faultsOf(result: CommandResult, title: string): Fault[] {
  if (result.code === 0) return []
  return [`${title} exited with ${result.code}\n${result.output.trimEnd()}`]
}
