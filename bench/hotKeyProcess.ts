/**
 * A process of callers for `bench hot-key`: each calls again as soon as it has its answer. It is sent one round after the other.
 * Arguments: url, size of the pool.
 */
import { Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { atLimit, byDocument003, combined, plainly, type Transfer } from './ledger/transfers.ts'

export type Method = 'ordered row locks' | 'plain' | 'combine' | 'the limit'

/** What is to be done in a round. */
export interface Round {
  readonly way: Method
  readonly callers: number
  readonly ms: number
  /** All to one account, or spread over all of them. */
  readonly hot: boolean
  readonly accounts: number
}

/** What came of it. */
export interface RoundResult {
  readonly transfers: number
  readonly tookMs: number
  /** How long each caller waited, in milliseconds. */
  readonly latencies: readonly number[]
}

const [url, poolSize] = process.argv.slice(2) as [string, string]
const pool = new pg.Pool({ connectionString: url, max: Number(poolSize) })
const lockstep = new Lockstep(pool) as unknown as Lockstep
const ways: Readonly<Record<Method, (transfer: Transfer) => Promise<true>>> = {
  'ordered row locks': byDocument003(pool),
  plain: plainly(lockstep),
  combine: combined(lockstep),
  'the limit': atLimit(pool),
}

async function play({ way, callers, ms, hot, accounts }: Round): Promise<RoundResult> {
  const transfer = ways[way]
  const latencies: number[] = []
  const startedAt = performance.now()
  await Promise.all(
    Array.from({ length: callers }, async (_, caller) => {
      for (let number = caller; performance.now() - startedAt < ms; number += callers) {
        const source = 1 + ((number * 7919) % (accounts - 1))
        const target = hot ? 0 : 1 + ((number * 104_729 + 1) % (accounts - 1))
        if (source === target) continue
        const calledAt = performance.now()
        await transfer({ id: `${number}`, source, target, amount: 1 })
        latencies.push(performance.now() - calledAt)
      }
    }),
  )
  return { transfers: latencies.length, tookMs: performance.now() - startedAt, latencies }
}

process.on('message', (round: Round) => void play(round).then((result) => process.send?.(result)))
process.send?.('ready')
