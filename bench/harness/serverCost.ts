import { readFileSync } from 'node:fs'
import type pg from 'pg'
import { childrenOf } from '../../tools/server/processes.ts'
import { WAL_POSITION } from './serverCost.sql.ts'

/** What a server has spent so far. */
export interface Spent {
  readonly walBytes: number
  /** Of all of its processes, those that have ended included. Not known where there is no /proc. */
  readonly cpuMs: number
}

/** A tick of the kernel's account, on every Linux that Node runs on. */
export const TICK_MS = 10

export async function spentBy(server: { readonly pid: number | undefined }, admin: pg.Pool): Promise<Spent> {
  const { rows } = await admin.query<{ bytes: number }>(WAL_POSITION)
  return { walBytes: rows[0]?.bytes ?? Number.NaN, cpuMs: cpuOf(server.pid) }
}

function cpuOf(postmaster: number | undefined): number {
  if (postmaster === undefined || process.platform !== 'linux') return Number.NaN
  const children = childrenOf(postmaster).map((pid) => ticksOf(pid, false))
  return TICK_MS * children.reduce((sum, ticks) => sum + ticks, ticksOf(postmaster, true))
}

/** User and system time; with that of the children that have ended. */
function ticksOf(pid: number, withEnded: boolean): number {
  let line: string
  try {
    line = readFileSync(`/proc/${pid}/stat`, 'utf8')
  } catch {
    // It has ended since it was seen; its parent has its time by now.
    return 0
  }
  // The name may hold blanks and brackets: what counts comes behind the last of them.
  const fields = line
    .slice(line.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number)
  const [user = 0, system = 0, endedUser = 0, endedSystem = 0] = fields.slice(11, 15)
  return user + system + (withEnded ? endedUser + endedSystem : 0)
}
