import { key } from 'pg-lockstep'
import { exactlyOnce } from '../checkers/exactlyOnce.ts'
import { linearizableRegister } from '../checkers/linearizableRegister.ts'
import { atMost } from '../checkers/mutualExclusion.ts'
import { refusedWhileHeld } from '../checkers/refusedWhileHeld.ts'
import type { Random } from '../seed.ts'
import { ACQUIRE_001, FOUND, READ, RECORD, RELEASE_001, TABLES, WRITE } from './instance.sql.ts'
import {
  beActive,
  byHand,
  held,
  type Operation,
  type Scenario,
  underLease,
  whileHeld,
  type WorkerTools,
} from './scenario.ts'

/** So many lanes of a worker share one, so that a crowd is spread over several. */
const LANES_EACH = 8
const [FEWEST, MOST] = [2, 6]
/** For so long there are the same ones. Then there are others: those who ask first for a name make its row. */
const THERE_MS = 250

/** Some are there for longer. Of their steps, a few take longer than a lock lasts that is not renewed. */
const LONG_MS = 3000
const LONG = 0.3
const SLOW = 0.15
const SLOW_TTLS = 1.3

function instanceNow(hands: WorkerTools, random: Random): string {
  const instances = Math.max(FEWEST, Math.min(MOST, Math.floor(hands.lanes / LANES_EACH)))
  const [kind, thereMs] = random.chance(LONG) ? ['long', LONG_MS] : ['short', THERE_MS]
  return `${kind} instance ${hands.round}.${Math.floor(hands.elapsedMs() / thereMs)}.${random.below(instances)}`
}

/** How long a step takes. */
function workMs({ ttlMs }: WorkerTools, { key: name, random }: Operation): number {
  if (name.startsWith('long') && random.chance(SLOW)) return SLOW_TTLS * ttlMs
  return 5 + random.below(30)
}

type Query = (text: string, values: unknown[]) => Promise<{ rows: { step: number }[] }>

async function doStep(query: Query, round: number, operation: Operation): Promise<number> {
  const { rows } = await query(READ, [operation.key])
  const step = rows[0]?.step ?? 0
  operation.tell('read', { value: step })
  await query(WRITE, [operation.key, step + 1, round])
  await query(RECORD, [round, operation.key, operation.id])
  operation.tell('wrote', { value: step + 1 })
  return step + 1
}

/** A step of a process instance that takes a while: of those who come at the same time, one may do it. */
export const instance: Scenario = {
  name: 'instance',
  title: 'One process step at a time',
  forms: {
    naive:
      'inserts a lock row where there is none that is valid, under a try-lock that is younger than its snapshot; it ends by itself',
    lockstep: 'takes a lease, works, writes the step in lease.transaction()',
  },
  lanes: 2,
  checkers: [atMost(1), refusedWhileHeld, linearizableRegister, exactlyOnce],
  tables: TABLES,
  prepare: () => undefined,
  play: {
    naive: (hands) => ({
      keyFor: (random) => instanceNow(hands, random),
      async operate(operation) {
        const { pool, ttlMs, round } = hands
        // code: naive
        const { rows } = await pool.query<{ lock_token: string }>(ACQUIRE_001, [operation.key, ttlMs, operation.id])
        const token = rows[0]?.lock_token
        if (token === undefined) throw new Error('LOCKED')
        const work = async (): Promise<number> => {
          await beActive(hands, operation, workMs(hands, operation), () => true)
          const step = await byHand(pool, (client) =>
            doStep((text, values) => client.query(text, values), round, operation),
          )
          operation.tell('active')
          return step
        }
        return whileHeld(operation, {}, work, () => pool.query(RELEASE_001, [operation.key, token]))
        // code: end
      },
    }),
    lockstep: (hands) => ({
      keyFor: (random) => instanceNow(hands, random),
      // code: lockstep
      operate: (operation) =>
        underLease(hands, operation, key`ProveInstance:${operation.key}`, {}, async (lease) => {
          await beActive(hands, operation, workMs(hands, operation), held(lease), lease.fence)
          return lease.transaction({}, (tx) => doStep((text, values) => tx.query(text, values), hands.round, operation))
        }),
      // code: end
    }),
  },
  found: (round) => ({ text: FOUND, values: [round] }),
}
