import type { LockHolder } from '../errors.ts'
import type { Connection } from '../postgres/index.ts'
import type { LockSet } from './lockSet.ts'
import { holdersOf } from './locks.sql.ts'

/** Asks the server who holds the locks. An answer is a courtesy: where it cannot be had, there is none. */
export async function findHolders(connection: Connection, locks: LockSet): Promise<LockHolder[]> {
  const keys = new Map(locks.map((lock) => [BigInt.asUintN(64, lock.id), lock.key]))
  const [result] = await connection.script(holdersOf(locks))
  return (result?.rows ?? []).map((row) => {
    const id = (BigInt(row['high'] as string) << 32n) | BigInt(row['low'] as string)
    const open = row['open'] as string | null
    return {
      where: 'server',
      key: keys.get(id) ?? '',
      pid: Number(row['pid']),
      ...(row['application'] ? { application: row['application'] } : {}),
      ...(row['state'] ? { state: row['state'] } : {}),
      ...(open === null ? {} : { openForMs: Number(open) }),
    }
  })
}
