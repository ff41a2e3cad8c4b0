import type pg from 'pg'
import { key, type Lockstep } from 'pg-lockstep'
import { BEGIN, BEGIN_SERIALIZABLE, COMMIT, LOCK_INSIDE, READ_BALANCE, ROLLBACK, WRITE_BALANCE } from './wallets.sql.ts'

/** What a racer works with. */
export interface Means {
  readonly pool: pg.Pool
  readonly lockstep: Lockstep
}

/** One way to add 1 to a wallet: read the balance, write the balance plus one. */
export interface Way {
  readonly title: string
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

export const WAYS = {
  unlocked: {
    title: 'READ COMMITTED without a lock',
    shortTitle: 'READ COMMITTED, no lock',
    wallet: 'unlocked',
    promised: false,
    increment: ({ pool }, wallet) => byHand(pool, BEGIN, (client) => addOne(client, wallet)),
  },
  locked: {
    title: 'lockstep.transaction({ lock: key`Wallet:${id}` })',
    shortTitle: 'READ COMMITTED, Lockstep',
    wallet: 'locked',
    promised: true,
    increment: ({ lockstep }, wallet) =>
      lockstep.transaction({ lock: key`Wallet:${wallet}` }, (tx) => addOne(tx, wallet)),
  },
  lockedInside: {
    title: 'SERIALIZABLE with the lock as its first statement: the lock itself takes the snapshot, then waits',
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
    title:
      "lockstep.transaction({ lock: key`Wallet:${id}`, isolation: 'serializable' }): the lock comes before the snapshot",
    shortTitle: 'SERIALIZABLE, Lockstep',
    wallet: 'handed-over',
    promised: true,
    increment: ({ lockstep }, wallet) =>
      // No retry, which would hide the failures that this race counts.
      lockstep.transaction({ lock: key`Wallet:${wallet}`, isolation: 'serializable', retry: false }, (tx) =>
        addOne(tx, wallet),
      ),
  },
} as const satisfies Record<string, Way>

export type WayName = keyof typeof WAYS
