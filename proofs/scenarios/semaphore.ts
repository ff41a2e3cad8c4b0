import { key } from 'pg-lockstep'
import { atMost } from '../checkers/mutualExclusion.ts'
import { beActive, held, type Scenario, underLease, whileHeld } from './scenario.ts'
import { COUNT_PERMITS, GIVE_PERMIT, TABLES, TAKE_PERMIT } from './semaphore.sql.ts'

const PERMITS = 3
const nameOf = (round: number): string => `room ${round}`

/** A room for three: a fourth caller cannot enter. */
export const semaphore: Scenario = {
  name: 'semaphore',
  title: `A room for ${PERMITS}`,
  forms: {
    naive: `counts who is inside, and enters if they are fewer than ${PERMITS}`,
    lockstep: `takes a lease with permits: ${PERMITS}`,
  },
  lanes: 2,
  checkers: [atMost(PERMITS)],
  tables: TABLES,
  prepare: () => undefined,
  play: {
    naive: (hands) => ({
      keyFor: () => nameOf(hands.round),
      async operate(operation) {
        const { rows } = await hands.pool.query<{ taken: number }>(COUNT_PERMITS, [operation.key])
        const taken = rows[0]?.taken ?? 0
        operation.tell('read', { value: `${taken} inside` })
        if (taken >= PERMITS) throw new Error('FULL')
        await hands.pool.query(TAKE_PERMIT, [operation.key, operation.id, hands.ttlMs])
        await whileHeld(
          operation,
          {},
          () => beActive(hands, operation, 10 + operation.random.below(30), () => true),
          () => hands.pool.query(GIVE_PERMIT, [operation.key, operation.id]),
        )
        return undefined
      },
    }),
    lockstep: (hands) => ({
      keyFor: () => nameOf(hands.round),
      async operate(operation) {
        const options = { permits: PERMITS, waitMs: 2000 }
        await underLease(hands, operation, key`ProveRoom:${operation.key}`, options, (lease) =>
          beActive(hands, operation, 10 + operation.random.below(30), held(lease), lease.fence),
        )
        return undefined
      },
    }),
  },
  found: () => undefined,
}
