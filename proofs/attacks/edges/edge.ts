import type { Goal } from '../../../tools/judge/report.ts'
import type { ReportProgress } from '../attack.ts'
import type { DriverName, Lab } from '../lab.ts'

/** Where an edge is attacked: one server, one driver. */
export interface Arena {
  readonly lab: Lab
  readonly driver: DriverName
  /** The size that `npm cit` runs: the same code with fewer repetitions. */
  readonly scaledDown: boolean
  readonly reportProgress: ReportProgress
}

/**
 * One place where Lockstep meets something that it does not control: an ORM, a job queue, a pool, a network, an engine. Its goals
 * include a control, a naive program without Lockstep's protection, in which the fault must show.
 */
export interface Edge {
  /** Short, for the table: `orm`, `job-queue`, … */
  readonly name: string
  run(arena: Arena): Promise<readonly Goal[]>
}
