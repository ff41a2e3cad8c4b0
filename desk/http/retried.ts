import type { Context } from 'hono'
import { idempotent, type PlainOptions, type TransactionalOptions } from 'pg-lockstep/http'
import type { Desk } from '../desk.ts'

type DeskLockstep = Desk['lockstep']

/**
 * Whose Idempotency-Key it is. The desk verifies one principal: the holder of its token, or this machine. Where there are users, return the
 * id of the one that was authenticated, never a header that the client sets: no user can get another user's answer.
 */
const scope = (): string => 'desk'

/** A client may leave the key out: curl does. Then every request is a new one. */
const SHARED = { scope, required: false } as const

/** A request that may come twice: its effect and its answer are committed together. */
export function retriedInTransaction(
  lockstep: DeskLockstep,
  options: Pick<TransactionalOptions<Context>, 'lock' | 'transaction'> = {},
) {
  const wanted: TransactionalOptions<Context> = { ...SHARED, ...options }
  return idempotent(lockstep, wanted)
}

/** The same for work that takes longer than a transaction should: the answer is stored after it. */
export function retriedPlainly(lockstep: DeskLockstep, lease: NonNullable<PlainOptions<Context>['lease']>) {
  const wanted: PlainOptions<Context> = { ...SHARED, form: 'plain', lease }
  return idempotent(lockstep, wanted)
}
