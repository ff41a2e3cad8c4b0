import type { Connection } from './connection.ts'
import { ensureIncarnation } from './postgres.sql.ts'

/** One life of one database: whatever is remembered outside it is good only while this stays the same. */
export interface Incarnation {
  /** Random; another one after a crash, a promotion, a restore. */
  readonly value: string
  /** Grows by one with each life. */
  readonly epoch: bigint
  readonly timeline: string
  readonly system: string
  readonly database: string
}

/** Reads the current life, and begins a new one where the last has ended. */
export async function readIncarnation(connection: Connection, quotedSchema: string): Promise<Incarnation> {
  const results = await connection.script(ensureIncarnation(quotedSchema))
  const row = results[1]?.rows[0] as {
    value: string
    epoch: string
    timeline: string
    system: string
    database: string
  }
  return { ...row, epoch: BigInt(row.epoch) }
}
