import type pg from 'pg'
import type { ReservedSql } from 'postgres'
import type { Transaction } from '../../../src/index.ts'
import type { DriverName } from './workbench.ts'

/** One client of a driver, in the few words that both know. */
export interface AnyClient {
  /** Sends a text, by the simple protocol where it has no values. */
  send(text: string, values?: readonly unknown[]): Promise<Record<string, unknown>[]>
  /** Another client from the same place: `connect()` of pg, `reserve()` of postgres.js. */
  another(): Promise<AnyClient>
  release(): void
}

/** `tx.client`, or something like it. */
export function clientOf(driver: DriverName, given: unknown): AnyClient {
  if (driver === 'pg') {
    const client = given as pg.PoolClient
    return {
      send: async (text, values) => (await client.query<Record<string, unknown>>(text, values && [...values])).rows,
      another: async () => clientOf(driver, await (client as unknown as pg.Pool).connect()),
      release: () => client.release(),
    }
  }
  const sql = given as ReservedSql
  return {
    send: async (text, values) => [
      ...(await sql.unsafe<Record<string, unknown>[]>(text, values && ([...values] as never[]))),
    ],
    another: async () => clientOf(driver, await sql.reserve()),
    release: () => sql.release(),
  }
}

/** Writes into the table of the workbench, through a client. */
export async function noteBy(client: AnyClient, id: string): Promise<void> {
  await client.send('INSERT INTO notes VALUES ($1)', [id])
}

/** The client of a transaction. */
export function ofTransaction(driver: DriverName, tx: Transaction): AnyClient {
  return clientOf(driver, tx.client)
}
