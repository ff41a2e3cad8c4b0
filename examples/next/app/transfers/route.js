import { key } from 'pg-lockstep'
import { fetchHandler, idempotent } from 'pg-lockstep/http'
import { lockstep } from '../../lockstep.js'
import { transfer } from '../../transfer.js'
import { userOf } from '../../user.js'

const once = idempotent(lockstep, {
  scope: userOf,
  // A copy: the handler reads the body as well.
  async lock(request) {
    const { from, to } = await request.clone().json()
    return [key`Account:${from}`, key`Account:${to}`]
  },
})

/** A retry with the same Idempotency-Key gets the first answer, and the money has moved once. */
export const POST = fetchHandler(once, async (request, tx) =>
  Response.json(await transfer(tx, await request.json()), { status: 201 }),
)
