import type { Lease } from 'pg-lockstep'
import type pg from 'pg'
import type { Desk } from '../desk.ts'
import { notFound, ProblemError } from '../http/problem.ts'
import { ADVANCE, CANCEL, READ, RECORD, STEP_OF_REQUEST } from './instances.sql.ts'
import type { Payments } from './payments.ts'

/** What a task works with. */
interface TaskContext {
  readonly payments: Payments
  /** The same for every attempt at this step of this instance: what is done outside is done once. */
  readonly effectId: string
  /** Aborted when the lease is lost. */
  readonly signal: AbortSignal
}

/** One step of a process: what has to be done before it counts. */
interface Task {
  readonly name: string
  run?(context: TaskContext): Promise<void>
  /** How long it usually takes. */
  takesMs?(payments: Payments): number
}

/** The process that every instance goes through. */
export const PROCESS: readonly Task[] = [
  { name: 'check' },
  { name: 'reserve' },
  // Outside the database, and slow: no connection is held meanwhile, and it is ended when the lease is lost.
  {
    name: 'charge',
    run: ({ payments, effectId, signal }) => payments.charge(effectId, signal),
    takesMs: ({ takesMs }) => takesMs,
  },
  { name: 'ship' },
]

const CHARGE_STEP = PROCESS.findIndex(({ name }) => name === 'charge')

/** As it stands in the table. */
export interface InstanceRow {
  readonly id: string
  readonly steps: number
  readonly cancelled: boolean
}

/** Where an instance is: its next task, `done` or `cancelled`. */
export function stateOf({ steps, cancelled }: Pick<InstanceRow, 'steps' | 'cancelled'>): string {
  return cancelled ? 'cancelled' : (PROCESS[steps]?.name ?? 'done')
}

/** How much longer the task of this name takes, if it began then. */
export function leftOfTask(payments: Payments, name: string, since: Date): number {
  const task = PROCESS.find((each) => each.name === name)
  return Math.max(0, since.getTime() + (task?.takesMs?.(payments) ?? 0) - Date.now())
}

export interface Taken {
  readonly id: string
  readonly step: number
  readonly task: string
  /** The next task, or `done`. */
  readonly state: string
}

/** What a request says about itself. */
export interface Wish {
  /** Names the request. If it has taken a step already, and died before it could say so, that step is the answer. */
  readonly request: string | undefined
  /** The states in which it wants the instance to be; undefined: any. */
  readonly expected: readonly string[] | undefined
}

export async function readInstance({ pool }: Pick<Desk, 'pool'>, id: string): Promise<InstanceRow> {
  const { rows } = await pool.query<InstanceRow>(READ, [id])
  if (rows[0] === undefined) throw notFound('instance', id)
  return rows[0]
}

/**
 * Takes the next step of an instance. The caller holds its lease; what is written is written through it, so that one who has lost the
 * lease writes nothing.
 */
export async function takeNextStep(
  desk: Desk,
  payments: Payments,
  id: string,
  lease: Lease<pg.PoolClient>,
  { request, expected }: Wish,
): Promise<Taken> {
  const { pool, processName } = desk
  if (request !== undefined) {
    const { rows } = await pool.query<{ step: number; task: string }>(STEP_OF_REQUEST, [id, request])
    const [taken] = rows
    if (taken !== undefined) return { id, ...taken, state: stateOf({ steps: taken.step, cancelled: false }) }
  }
  const row = await readInstance(desk, id)
  checkExpected(row, expected)
  const task = row.cancelled ? undefined : PROCESS[row.steps]
  if (task === undefined) throw hasEnded(row)
  const step = row.steps + 1
  await task.run?.({ payments, effectId: chargeId(id), signal: lease.signal })
  await lease.transaction({}, async (tx) => {
    const { rowCount } = await tx.query(ADVANCE, [id, row.steps])
    if (rowCount !== 1) throw new Error(`The instance ${id} was moved by a writer that does not hold its lease.`)
    await tx.query(RECORD, [id, step, task.name, lease.fence, processName, request ?? null])
  })
  return { id, step, task: task.name, state: stateOf({ steps: step, cancelled: false }) }
}

/** Ends an instance before its process does, as long as it is not charged. */
export async function cancelInstance(
  desk: Desk,
  payments: Payments,
  id: string,
  lease: Lease<pg.PoolClient>,
  expected: Wish['expected'],
): Promise<InstanceRow> {
  const row = await readInstance(desk, id)
  if (row.cancelled) return row
  checkExpected(row, expected)
  if (row.steps >= PROCESS.length) throw hasEnded(row)
  // Also where a step that died in between has charged, and did not write it down.
  if (row.steps > CHARGE_STEP || !(await payments.void(chargeId(id)))) throw isCharged(row)
  await lease.transaction({}, async (tx) => {
    const { rowCount } = await tx.query(CANCEL, [id, row.steps])
    if (rowCount !== 1) throw new Error(`The instance ${id} was moved by a writer that does not hold its lease.`)
  })
  return { ...row, cancelled: true }
}

function chargeId(id: string): string {
  return `${id}:charge`
}

function checkExpected(row: InstanceRow, expected: Wish['expected']): void {
  const state = stateOf(row)
  if (expected === undefined || expected.includes(state)) return
  const detail = `The instance ${row.id} is at ${state}, and the request expects ${expected.join(' or ')}. Nothing was done.`
  throw new ProblemError('step-mismatch', detail, { members: { state } })
}

function hasEnded(row: InstanceRow): ProblemError {
  const why = row.cancelled ? 'was cancelled' : 'has taken all its steps'
  return new ProblemError('process-ended', `The instance ${row.id} ${why}.`, { members: { state: stateOf(row) } })
}

function isCharged(row: InstanceRow): ProblemError {
  const detail = `The instance ${row.id} is charged, and cannot be cancelled any more.`
  return new ProblemError('already-charged', detail, { members: { state: stateOf(row) } })
}
