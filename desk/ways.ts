import type pg from 'pg'
import { key, type Lockstep } from 'pg-lockstep'
import {
  BEGIN_READ_COMMITTED,
  BEGIN_SERIALIZABLE,
  COMMIT,
  LOCK_INSIDE,
  READ_BALANCE,
  ROLLBACK,
  WRITE_BALANCE,
} from './wallets.sql.ts'

/** What a racer works with. */
export interface Means {
  readonly pool: pg.Pool
  readonly lockstep: Lockstep
}

/** One way to add 1 to a wallet: read the balance, write the balance plus one. */
export interface Way {
  readonly title: string
  /** Why it comes out as it does. */
  readonly why: string
  /** Its row in the table of results. */
  readonly shortTitle: string
  readonly wallet: string
  /** Whether Lockstep answers for the result. */
  readonly promised: boolean
  readonly increment: (means: Means, wallet: string) => Promise<void>
}

interface Queries {
  query(text: string, values: unknown[]): Promise<{ rows: unknown[] }>
}

async function addOne(queries: Queries, wallet: string): Promise<void> {
  const { rows } = await queries.query(READ_BALANCE, [wallet])
  const { balance } = rows[0] as { balance: number }
  await queries.query(WRITE_BALANCE, [wallet, balance + 1])
}

async function byHand(pool: pg.Pool, begin: string, work: (client: pg.PoolClient) => Promise<void>): Promise<void> {
  const client = await pool.connect()
  try {
    await client.query(begin)
    await work(client)
    await client.query(COMMIT)
  } catch (error) {
    await client.query(ROLLBACK)
    throw error
  } finally {
    client.release()
  }
}

/** Lockstep would repeat a failed attempt, and so hide what these races count. */
const COUNTED = { retry: false } as const

export const WAYS = {
  unlocked: {
    title: 'READ COMMITTED without a lock',
    why: 'both read the same balance, both write it plus one',
    shortTitle: 'READ COMMITTED, no lock',
    wallet: 'unlocked',
    promised: false,
    increment: ({ pool }, wallet) => byHand(pool, BEGIN_READ_COMMITTED, (client) => addOne(client, wallet)),
  },
  locked: {
    title: 'lockstep.transaction({ lock: key`Wallet:${id}` })',
    why: 'the lock first, then the read',
    shortTitle: 'READ COMMITTED, Lockstep',
    wallet: 'locked',
    promised: true,
    increment: ({ lockstep }, wallet) =>
      lockstep.transaction({ lock: key`Wallet:${wallet}`, ...COUNTED }, (tx) => addOne(tx, wallet)),
  },
  lockedInside: {
    title: 'SERIALIZABLE with the lock as its first statement',
    why: 'the lock itself takes the snapshot, and then waits',
    shortTitle: 'SERIALIZABLE, lock inside',
    wallet: 'locked-inside',
    promised: false,
    increment: ({ pool }, wallet) =>
      byHand(pool, BEGIN_SERIALIZABLE, async (client) => {
        await client.query(LOCK_INSIDE, [`Wallet:${wallet}`])
        await addOne(client, wallet)
      }),
  },
  handedOver: {
    title: "lockstep.transaction({ lock: key`Wallet:${id}`, isolation: 'serializable' })",
    why: 'the lock first, then the snapshot',
    shortTitle: 'SERIALIZABLE, Lockstep',
    wallet: 'handed-over',
    promised: true,
    increment: ({ lockstep }, wallet) =>
      lockstep.transaction({ lock: key`Wallet:${wallet}`, isolation: 'serializable', ...COUNTED }, (tx) =>
        addOne(tx, wallet),
      ),
  },
} as const satisfies Record<string, Way>

export type WayName = keyof typeof WAYS
