import { setTimeout as sleep } from 'node:timers/promises'
import { ConnectionLost, LeaseHeld, LeasePermitsDiffer, PoolClosed } from '../errors.ts'
import type { Key } from '../locks/index.ts'
import { meansConnectionLost, SilenceWatch, standbyRefused, withConnection } from '../postgres/index.ts'
import type { Grounds } from '../transactions/index.ts'
import { elapsedMs, thisMoment } from './clock.ts'
import type { Grant } from './lease.ts'
import { release, take, type TakeRow } from './leases.sql.ts'
import type { LeasePlan } from './options.ts'
import type { Pending } from './pending.ts'

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

/** How often a message whose answer was lost is sent again, and the pause before, which grows. */
export const TRIES = 4
export const PAUSE_MS = 40
const ONE_TRY_MS = 5000
/** Giving back is tried this often at least, until the lease has ended by itself. */
const LONGEST_PAUSE_MS = 2000

/**
 * Asks for the lease. The token is ours: if the answer is lost, the same question finds what the first one did. Where that does not
 * come to light either, the lease is given back, in case it was granted.
 */
export async function takeLease(
  grounds: Grounds,
  pending: Pending,
  key: Key,
  token: string,
  plan: LeasePlan,
  place?: string,
): Promise<Taken> {
  const { ttlMs, permits, holder, metadata, history } = plan
  const text = take(grounds.quotedSchema, { name: key, token, ttlMs, permits, holder, metadata, place, history })
  const withinMs = Math.min(grounds.silence.silenceMs, ttlMs / 2, ONE_TRY_MS)
  for (let attempt = 1; ; attempt++) {
    const askedAt = thisMoment()
    try {
      const row = await ask(grounds, text, withinMs)
      if (row.verdict === 'permits') throw permitsDiffer(key, permits, Number(row.permits))
      if (row.verdict !== 'granted') return { granted: false, by: obstacleOf(row) }
      // Granted, but the answer took so long that it says nothing about now: as after a lost answer, ask again.
      if (elapsedMs(askedAt) < ttlMs / 2) return { granted: true, grant: { fence: BigInt(row.fence ?? 0), askedAt } }
    } catch (error) {
      if (!isLost(error)) throw error
      if (attempt >= TRIES) {
        void pending.track(giveBack(grounds, key, token, ttlMs))
        throw error
      }
    }
    await sleep(PAUSE_MS * attempt)
  }
}

/** Whether the connection was lost, so that nobody knows what became of the message. */
export function isLost(error: unknown): boolean {
  return error instanceof ConnectionLost || meansConnectionLost(error)
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

/** Gives it back. After a few tries it comes back, and goes on in the background until the lease has ended by itself. */
export async function giveBack(grounds: Grounds, key: Key, token: string, ttlMs: number): Promise<void> {
  const text = release(grounds.quotedSchema, key, token)
  const silence = new SilenceWatch(Math.min(grounds.silence.silenceMs, ONE_TRY_MS))
  const givenBack = (): Promise<boolean> =>
    withConnection(grounds.driver, (connection) => connection.script(text), silence).then(
      () => true,
      // To an ended pool nothing can be given.
      (error: unknown) => error instanceof PoolClosed,
    )
  for (let attempt = 1; attempt <= TRIES; attempt++) {
    if (await givenBack()) return
    await sleep(PAUSE_MS * attempt)
  }
  const endsAt = performance.now() + ttlMs
  const goOn = (pauseMs: number): void => {
    const timer = setTimeout(() => {
      void givenBack().then((done) => {
        if (!done && performance.now() < endsAt && !grounds.closing.closed)
          goOn(Math.min(2 * pauseMs, LONGEST_PAUSE_MS))
      })
    }, pauseMs)
    timer.unref()
  }
  goOn(PAUSE_MS * TRIES)
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
