import { key } from 'pg-lockstep'
import { atMost } from '../checkers/mutualExclusion.ts'
import { BEAT, RESIGN, TABLES } from './leader.sql.ts'
import { beActive, held, type Scenario } from './scenario.ts'

const nameOf = (round: number): string => `leader ${round}`
const TERM_MS = 300

/** One of all processes leads. */
export const leader: Scenario = {
  name: 'leader',
  title: 'One leader at a time',
  forms: {
    naive: 'writes a heartbeat into a row, and leads until a heartbeat is refused',
    lockstep: 'lockstep.leader()',
  },
  lanes: 1,
  checkers: [atMost(1)],
  tables: TABLES,
  prepare: () => undefined,
  play: {
    naive: (hands) => ({
      keyFor: () => nameOf(hands.round),
      async operate(operation) {
        const beat = async (): Promise<boolean> =>
          (await hands.pool.query(BEAT, [operation.key, operation.id, hands.ttlMs])).rowCount === 1
        if (!(await beat())) throw new Error('NOT THE LEADER')
        operation.tell('granted')
        const until = hands.now() + (TERM_MS + operation.random.below(TERM_MS)) * 1000
        let beatAt = hands.now() + (hands.ttlMs / 3) * 1000
        while (hands.now() < until) {
          await new Promise((resolve) => setTimeout(resolve, 4))
          operation.tell('active')
          if (hands.now() < beatAt) continue
          if (!(await beat())) throw new Error('NO LONGER THE LEADER')
          beatAt = hands.now() + (hands.ttlMs / 3) * 1000
        }
        operation.tell('released')
        await hands.pool.query(RESIGN, [operation.key, operation.id])
        return undefined
      },
    }),
    lockstep: (hands) => ({
      keyFor: () => nameOf(hands.round),
      async operate(operation) {
        let terms = 0
        await hands.lockstep.leader(
          key`ProveLeader:${operation.key}`,
          { ttlMs: hands.ttlMs, signal: hands.signal, holder: operation.id },
          async (lease) => {
            // A second term would be another claim.
            if (++terms > 1) return
            operation.tell('granted', { fence: String(lease.fence) })
            const forMs = TERM_MS + operation.random.below(TERM_MS)
            await beActive(hands, operation, forMs, () => !hands.signal.aborted && held(lease)(), lease.fence)
            operation.tell('released')
          },
        )
        return undefined
      },
    }),
  },
  found: () => undefined,
}
