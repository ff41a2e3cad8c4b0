import { setTimeout as sleep } from 'node:timers/promises'
import { LeasePermitsDiffer, PoolClosed } from '../errors.ts'
import type { Key } from '../locks/index.ts'
import { SilenceWatch, standbyRefused, withConnection } from '../postgres/index.ts'
import type { Grounds } from '../transactions/index.ts'
import { send } from './send.ts'
import { elapsedMs, type Moment, thisMoment } from './clock.ts'
import { type Inquiry, isUnreachable, type Obstacle } from './inquiry.ts'
import type { Grant } from './lease.ts'
import { release, take, type TakeRow } from './leases.sql.ts'
import type { LeasePlan } from './options.ts'
import type { Pending } from './pending.ts'

export type Taken =
  | { readonly granted: true; readonly grant: Grant }
  | { readonly granted: false; readonly by: Obstacle }

/** How often a message whose answer was lost is sent again, and the pause before, which grows. */
export const TRIES = 4
export const PAUSE_MS = 40
export const ONE_TRY_MS = 5000
/** Giving back is tried this often at least, until the lease has ended by itself; so is asking, while the wait lasts. */
const LONGEST_PAUSE_MS = 2000
const LONGEST_ASKING_PAUSE_MS = 1000

/** Who asks for what, and for how long. */
export interface Question {
  readonly key: Key
  readonly token: string
  readonly plan: LeasePlan
  readonly inquiry: Inquiry
  /** Of a waiter. */
  readonly place?: string | undefined
  /** How often it is asked again where the database cannot be reached; without it, until the inquiry ends. */
  readonly tries?: number
}

/**
 * Asks for the lease. The token is ours: if the answer is lost, the same question finds what the first one did. Where that does not
 * come to light either, the lease is given back, in case it was granted.
 */
export async function takeLease(grounds: Grounds, pending: Pending, question: Question): Promise<Taken> {
  const { key, token, plan, inquiry, place, tries = Infinity } = question
  const { ttlMs, permits, holder, metadata, history } = plan
  const text = take(grounds.quotedSchema, { name: key, token, ttlMs, permits, holder, metadata, place, history })
  const connectMs = Math.min(grounds.silence.silenceMs, ONE_TRY_MS)
  const answerMs = Math.min(connectMs, ttlMs / 2)
  const startedAt = performance.now()
  // Whether a question was sent of which nobody knows what became.
  let unsure = false
  let granted = false
  try {
    for (let attempt = 1; ; attempt++) {
      let askedAt: Moment | undefined
      try {
        inquiry.connecting()
        await grounds.ready()
        const row = await ask(grounds, text, { connectMs, answerMs }, () => {
          inquiry.asking()
          askedAt = thisMoment()
        })
        unsure = row.verdict === 'granted'
        if (row.verdict === 'permits') throw permitsDiffer(key, permits, Number(row.permits))
        if (row.verdict !== 'granted') {
          const by = obstacleOf(row)
          inquiry.heard(by)
          return { granted: false, by }
        }
        // Granted, but the answer took so long that it says nothing about now: as after a lost answer, ask again.
        if (askedAt !== undefined && elapsedMs(askedAt) < ttlMs / 2) {
          granted = true
          return { granted: true, grant: { fence: BigInt(row.fence ?? 0), askedAt } }
        }
      } catch (error) {
        if (!isUnreachable(error)) throw error
        unsure ||= askedAt !== undefined
        inquiry.failed(error)
      }
      if (inquiry.ended || attempt >= tries) throw inquiry.error(performance.now() - startedAt)
      await sleep(Math.min(PAUSE_MS * attempt, LONGEST_ASKING_PAUSE_MS))
      if (inquiry.ended) throw inquiry.error(performance.now() - startedAt)
    }
  } finally {
    if (unsure && !granted) void pending.track(giveBack(grounds, key, token, ttlMs))
  }
}

async function ask(
  grounds: Grounds,
  text: string,
  limits: { readonly connectMs: number; readonly answerMs: number },
  onSent: () => void,
): Promise<TakeRow> {
  return send(grounds.driver, limits, async (connection) => {
    onSent()
    const results = await connection.script(text)
    const row = results.find((result) => result.rows.length > 0)?.rows[0] as unknown as TakeRow
    if (connection.protocolPid !== undefined) grounds.route.direct = connection.protocolPid === Number(row.pid)
    if (row.standby === 'true') throw standbyRefused()
    return row
  })
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
