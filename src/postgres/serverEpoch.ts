import type { Connection } from './connection.ts'
import { ensureServerEpoch } from './postgres.sql.ts'

/** One server epoch of one database: what is remembered outside of the database is valid only in this epoch. */
export interface ServerEpoch {
  /** The history. Random; another one after a crash, a promotion, a restore. */
  readonly value: string
  /** The generation of its fences, their upper bits: grows with a promotion or a restore, not with a crash. */
  readonly epoch: bigint
  readonly timeline: string
  readonly system: string
  readonly database: string
}

/** Reads the current server epoch, and begins a new one if the last has ended. */
export async function readServerEpoch(connection: Connection, quotedSchema: string): Promise<ServerEpoch> {
  const results = await connection.script(ensureServerEpoch(quotedSchema))
  const row = results[1]?.rows[0] as {
    value: string
    epoch: string
    timeline: string
    system: string
    database: string
  }
  return { ...row, epoch: BigInt(row.epoch) }
}
