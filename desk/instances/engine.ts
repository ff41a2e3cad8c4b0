import { setTimeout as delay } from 'node:timers/promises'
import type { Lease } from 'pg-lockstep'
import type pg from 'pg'
import type { Desk } from '../desk.ts'
import { notFound, ProblemError } from '../http/problem.ts'
import { ADVANCE, READ, RECORD, STEP_OF_REQUEST } from './instances.sql.ts'

/** One step of a process: what has to be done before it counts. */
interface Task {
  readonly name: string
  run?(signal: AbortSignal): Promise<void>
}

/** As long as a provider of payments takes. */
const CHARGE_MS = 300

/** The process that every instance goes through. */
export const PROCESS: readonly Task[] = [
  { name: 'check' },
  { name: 'reserve' },
  // Outside the database, and slow: no connection is held meanwhile, and it is ended when the lease is lost.
  { name: 'charge', run: (signal) => delay(CHARGE_MS, undefined, { signal }) },
  { name: 'ship' },
]

/** Where an instance is: its next task, or `done`. */
export function stateOf(steps: number): string {
  return PROCESS[steps]?.name ?? 'done'
}

export interface Taken {
  readonly id: string
  readonly step: number
  readonly task: string
  /** The next task, or `done`. */
  readonly state: string
}

/**
 * Takes the next step of an instance. The caller holds its lease; what is written is written through it, so that one who has lost the
 * lease writes nothing.
 *
 * `request` names the request that asks. If it has taken a step already, and died before it could say so, that step is the answer.
 */
export async function takeNextStep(
  { pool, processName }: Desk,
  id: string,
  lease: Lease<pg.PoolClient>,
  request: string | undefined,
): Promise<Taken> {
  if (request !== undefined) {
    const { rows } = await pool.query<{ step: number; task: string }>(STEP_OF_REQUEST, [id, request])
    const [taken] = rows
    if (taken !== undefined) return { id, ...taken, state: stateOf(taken.step) }
  }
  const { rows } = await pool.query<{ steps: number }>(READ, [id])
  const done = rows[0]?.steps
  if (done === undefined) throw notFound('instance', id)
  const task = PROCESS[done]
  if (task === undefined) {
    throw new ProblemError('process-ended', `The instance ${id} has taken all its steps.`)
  }
  await task.run?.(lease.signal)
  const step = done + 1
  await lease.transaction({}, async (tx) => {
    const { rowCount } = await tx.query(ADVANCE, [id, done])
    if (rowCount !== 1) throw new Error(`The instance ${id} was moved by somebody who does not hold its lease.`)
    await tx.query(RECORD, [id, step, task.name, lease.fence, processName, request ?? null])
  })
  return { id, step, task: task.name, state: stateOf(step) }
}
