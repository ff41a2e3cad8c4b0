import { key } from 'pg-lockstep'
import { fenceOrder } from '../checkers/fenceOrder.ts'
import { atMost } from '../checkers/mutualExclusion.ts'
import { GIVE_TIMED, TABLES, TAKE_TIMED } from './lease.sql.ts'
import { beActive, held, type Operation, type Scenario, underLease, whileHeld, type WorkerTools } from './scenario.ts'

const RESOURCES = [0, 1]
const WRITES = 3
const nameOf = (round: number, resource: number): string => `store ${round}.${resource}`

interface Write {
  readonly key: string
  readonly op: string
  readonly number: number
  /** Absent where the writer has none. */
  readonly fence?: string
}

/** Writes outside, one after the other, as long as it is certain; and, where it has a fence, says which. */
async function writeOutside(
  hands: WorkerTools,
  operation: Operation,
  certain: () => boolean,
  fence?: bigint,
): Promise<void> {
  for (let number = 1; number <= WRITES; number++) {
    await beActive(hands, operation, 8, certain, fence)
    if (!certain()) throw new Error('the lease is lost')
    await hands.ask('lease', {
      key: operation.key,
      op: operation.id,
      number,
      ...(fence === undefined ? {} : { fence: String(fence) }),
    } satisfies Write)
  }
}

/** A holder that writes to the world outside, where no transaction can hold it back. */
export const lease: Scenario = {
  name: 'lease',
  title: 'A holder that writes outside the database',
  forms: {
    naive: 'takes a lock row that is free once its time is over, and writes; a holder that was stopped writes late',
    lockstep: 'takes a lease, and shows its fence with each write: what is late is refused',
  },
  lanes: 2,
  checkers: [fenceOrder, atMost(1)],
  tables: TABLES,
  prepare: () => undefined,
  play: {
    naive: (hands) => ({
      keyFor: (random) => nameOf(hands.round, random.pick(RESOURCES)),
      async operate(operation) {
        const { rowCount } = await hands.pool.query(TAKE_TIMED, [operation.key, operation.id, hands.ttlMs])
        if (rowCount !== 1) throw new Error('LOCKED')
        await whileHeld(
          operation,
          {},
          () => writeOutside(hands, operation, () => true),
          () => hands.pool.query(GIVE_TIMED, [operation.key, operation.id]),
        )
        return undefined
      },
    }),
    lockstep: (hands) => ({
      keyFor: (random) => nameOf(hands.round, random.pick(RESOURCES)),
      async operate(operation) {
        await underLease(hands, operation, key`ProveStore:${operation.key}`, { waitMs: 2000 }, (taken) =>
          writeOutside(hands, operation, held(taken), taken.fence),
        )
        return undefined
      },
    }),
  },
  outside: () => {
    const highest = new Map<string, bigint>()
    return (question, take) => {
      const { key: name, op, number, fence } = question as Write
      if (fence !== undefined) {
        if (BigInt(fence) < (highest.get(name) ?? 0n)) return 'refused'
        highest.set(name, BigInt(fence))
      }
      take({ op, key: name, value: number, ...(fence === undefined ? {} : { fence }) })
      return 'taken'
    }
  },
  found: () => undefined,
}
