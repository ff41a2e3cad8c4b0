import { setTimeout as sleep } from 'node:timers/promises'
import { LeaseHeld, LeasePermitsDiffer } from '../errors.ts'
import type { Key } from '../locks/index.ts'
import { meansConnectionLost, SilenceWatch, standbyRefused, withConnection } from '../postgres/index.ts'
import { ConnectionLost } from '../errors.ts'
import type { Grounds } from '../transactions/index.ts'
import { elapsedMs, thisMoment } from './clock.ts'
import type { Grant } from './lease.ts'
import { release, take, type TakeRow } from './leases.sql.ts'
import type { LeasePlan } from './options.ts'

/** Who is in the way. */
export interface Obstacle {
  readonly holder: string | undefined
  readonly since: Date | undefined
  /** Until the holder's lease ends, if it is not renewed. */
  readonly leftMs: number
}

export type Taken =
  | { readonly granted: true; readonly grant: Grant }
  | { readonly granted: false; readonly by: Obstacle }

/** How often a lost answer is asked for again, under the same token. */
const TRIES = 4
const PAUSE_MS = 40

/**
 * Asks for the lease. The token is ours: if the answer is lost, the same question finds what the first one did. Where that does not
 * come to light either, the lease is given back, in case it was granted.
 */
export async function takeLease(
  grounds: Grounds,
  key: Key,
  token: string,
  plan: LeasePlan,
  place?: string,
): Promise<Taken> {
  const { ttlMs, permits, holder, metadata, history } = plan
  const text = take(grounds.quotedSchema, { name: key, token, ttlMs, permits, holder, metadata, place, history })
  const withinMs = Math.min(grounds.silence.silenceMs, ttlMs / 2)
  for (let attempt = 1; ; attempt++) {
    const askedAt = thisMoment()
    try {
      const row = await ask(grounds, text, withinMs)
      if (row.verdict === 'permits') throw permitsDiffer(key, permits, Number(row.permits))
      if (row.verdict !== 'granted') return { granted: false, by: obstacleOf(row) }
      // Granted, but the answer took so long that it says nothing about now: as after a lost answer, ask again.
      if (elapsedMs(askedAt) < ttlMs / 2) return { granted: true, grant: { fence: BigInt(row.fence ?? 0), askedAt } }
    } catch (error) {
      if (!(error instanceof ConnectionLost) && !meansConnectionLost(error)) throw error
      if (attempt >= TRIES) {
        void giveBack(grounds, key, token)
        throw error
      }
    }
    await sleep(PAUSE_MS * attempt)
  }
}

async function ask(grounds: Grounds, text: string, withinMs: number): Promise<TakeRow> {
  return withConnection(
    grounds.driver,
    async (connection) => {
      const results = await connection.script(text)
      const row = results.find((result) => result.rows.length > 0)?.rows[0] as unknown as TakeRow
      if (connection.protocolPid !== undefined) grounds.route.direct = connection.protocolPid === Number(row.pid)
      if (row.standby === 'true') throw standbyRefused()
      return row
    },
    new SilenceWatch(withinMs),
  )
}

/** Gives it back, with a few tries; after that it expires. */
export async function giveBack(grounds: Grounds, key: Key, token: string): Promise<void> {
  const text = release(grounds.quotedSchema, key, token)
  for (let attempt = 1; attempt <= TRIES; attempt++) {
    try {
      await withConnection(grounds.driver, (connection) => connection.script(text), grounds.silence)
      return
    } catch {
      await sleep(PAUSE_MS * attempt)
    }
  }
}

function obstacleOf(row: TakeRow): Obstacle {
  return {
    holder: row.holder ?? undefined,
    since: row.since === null ? undefined : new Date(Number(row.since)),
    leftMs: Number(row.left ?? 0),
  }
}

function permitsDiffer(key: Key, wanted: number, stored: number): LeasePermitsDiffer {
  return new LeasePermitsDiffer(`${key} is held with ${stored} permits, and ${wanted} were asked for.`, {
    advice: 'All callers of one key must say the same number of permits.',
    keys: [key],
  })
}

export function leaseHeld(key: Key, by: Obstacle, waitedMs: number): LeaseHeld {
  const who = by.holder === undefined ? 'somebody who is ahead in line' : by.holder
  const waited = waitedMs > 0 ? ` It was waited for ${Math.round(waitedMs)} ms.` : ''
  return new LeaseHeld(`The lease on ${key} is held by ${who}.${waited}`, {
    advice: 'Try again later, or wait with waitMs.',
    keys: [key],
    holder: by.holder,
    since: by.since,
    leftMs: by.leftMs,
    waitedMs,
  })
}
