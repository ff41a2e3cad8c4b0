import type pg from 'pg'
import { A_BACKEND, cancelFor, countOf, MIDDLE_OF, strike, terminateAndWait } from './sessions.sql.ts'

/** Which sessions of a database a fault is about. */
export interface Sessions {
  /** A pattern of LIKE for their application's name; all but our own by default. */
  readonly application?: string
  readonly middleOf?: keyof typeof MIDDLE_OF
  /** So many of them at most, at random. */
  readonly most?: number
}

type Admin = Pick<pg.Pool, 'query'>

/** Ends sessions, or what they run. Gives how many were struck. */
export function strikeSessions(admin: Admin, how: 'terminate' | 'cancel', which: Sessions): Promise<number> {
  return ask(admin, strike(how, which.middleOf ?? 'anything'), which)
}

/** Ends sessions, and comes back when they are gone. */
export function endSessions(admin: Admin, which: Sessions, withinMs = 1000): Promise<number> {
  return ask(admin, terminateAndWait(which.middleOf ?? 'anything'), which, withinMs)
}

/** How many there are just now. */
export function countSessions(admin: Admin, which: Sessions): Promise<number> {
  return ask(admin, countOf(which.middleOf ?? 'anything'), which)
}

async function ask(admin: Admin, text: string, which: Sessions, ...more: number[]): Promise<number> {
  const { application = '%', most = null } = which
  const { rows } = await admin.query<{ struck: number }>(text, [application, most, ...more])
  return rows[0]?.struck ?? 0
}

/** Cancels what runs, at random, again and again. */
export async function cancelAtRandom(admin: Admin, forMs: number): Promise<void> {
  await admin.query(cancelFor(forMs))
}

/** kill -9 of the process of one session: the server ends all the others and recovers, as after a crash. */
export async function killBackend(admin: Admin): Promise<void> {
  const { rows } = await admin.query<{ pid: number }>(A_BACKEND)
  process.kill(rows[0]?.pid as number, 'SIGKILL')
}
