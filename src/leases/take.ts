import { setTimeout as sleep } from 'node:timers/promises'
import { InvalidOptionError, LeasePermitsDifferError, PoolClosedError } from '../errors.ts'
import type { Key } from '../locks/index.ts'
import {
  codeOf,
  FEATURE_NOT_SUPPORTED,
  READ_ONLY_TRANSACTION,
  SilenceWatch,
  standbyRefused,
  withConnection,
} from '../postgres/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { send } from './send.ts'
import { type ClockReading, elapsedMs, readClocks } from './clock.ts'
import { type AcquireProgress, type Blocker, isUnreachable } from './acquireProgress.ts'
import type { Grant } from './lease.ts'
import { release, take, type TakeRow } from './leases.sql.ts'
import type { LeasePlan } from './options.ts'
import type { BackgroundTasks } from './backgroundTasks.ts'

export type Taken =
  | { readonly granted: true; readonly grant: Grant }
  | { readonly granted: false; readonly by: Blocker }

/** How often a message whose answer was lost is sent again, and the pause before, which grows. */
export const TRIES = 4
export const PAUSE_MS = 40
export const ONE_TRY_MS = 5000
/** Releasing is tried this often at least, until the lease has ended by itself; so is asking, while the wait lasts. */
const LONGEST_PAUSE_MS = 2000
const LONGEST_ASKING_PAUSE_MS = 1000

/** What a standby answers: its tables that are not logged cannot be read, and nothing can be written. */
const STANDBY_STATES: ReadonlySet<string> = new Set([READ_ONLY_TRANSACTION, FEATURE_NOT_SUPPORTED])

/** Who asks for what, and for how long. */
export interface AcquireRequest {
  readonly key: Key
  readonly token: string
  readonly plan: LeasePlan
  readonly progress: AcquireProgress
  /** Of a waiter. */
  readonly place?: string | undefined
  /** How often it is asked again where the database cannot be reached; without it, until the inquiry ends. */
  readonly tries?: number
}

/**
 * Asks for the lease. The token is ours: if the answer is lost, the same question finds what the first one did. Where that does not
 * come to light either, the lease is released, in case it was granted.
 */
export async function takeLease(
  context: LockstepContext,
  background: BackgroundTasks,
  request: AcquireRequest,
): Promise<Taken> {
  const { key, token, plan, progress, place, tries = Infinity } = request
  const { ttlMs, permits, holder, metadata, history } = plan
  const text = take(context.quotedSchema, { name: key, token, ttlMs, permits, holder, metadata, place, history })
  const connectMs = Math.min(context.silence.silenceMs, ONE_TRY_MS)
  const answerMs = Math.min(connectMs, ttlMs / 2)
  const startedAt = performance.now()
  // Whether a question was sent whose outcome is unknown.
  let unsure = false
  let granted = false
  try {
    for (let attempt = 1; ; attempt++) {
      let askedAt: ClockReading | undefined
      try {
        progress.connecting()
        await context.ready()
        const row = await ask(context, text, { connectMs, answerMs }, () => {
          progress.asking()
          askedAt = readClocks()
        })
        unsure = row.verdict === 'granted'
        if (row.verdict === 'permits') throw permitsDiffer(key, permits, Number(row.permits))
        if (row.verdict === 'ttl') throw ttlTooLong(key, ttlMs, Number(row.left))
        if (row.verdict !== 'granted') {
          const by = blockerOf(row)
          progress.heard(by)
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
        progress.failed(error)
      }
      if (progress.ended || attempt >= tries) throw progress.error(performance.now() - startedAt)
      await sleep(Math.min(PAUSE_MS * attempt, LONGEST_ASKING_PAUSE_MS))
      if (progress.ended) throw progress.error(performance.now() - startedAt)
    }
  } finally {
    if (unsure && !granted) void background.track(releaseLease(context, key, token, ttlMs))
  }
}

async function ask(
  context: LockstepContext,
  text: string,
  limits: { readonly connectMs: number; readonly answerMs: number },
  onSent: () => void,
): Promise<TakeRow> {
  return send(context.driver, limits, async (connection) => {
    onSent()
    const results = await connection.script(text).catch((error: unknown) => {
      throw STANDBY_STATES.has(codeOf(error) ?? '') ? standbyRefused() : error
    })
    const row = results.find((result) => result.rows.length > 0)?.rows[0] as unknown as TakeRow
    if (connection.protocolPid !== undefined) context.route.direct = connection.protocolPid === Number(row.pid)
    if (row.standby === 'true') throw standbyRefused()
    return row
  })
}

/** Releases it. After a few tries it returns, and goes on in the background until the lease has ended by itself. */
export async function releaseLease(context: LockstepContext, key: Key, token: string, ttlMs: number): Promise<void> {
  const text = release(context.quotedSchema, key, token)
  const silence = new SilenceWatch(Math.min(context.silence.silenceMs, ONE_TRY_MS))
  const givenBack = (): Promise<boolean> =>
    withConnection(context.driver, (connection) => connection.script(text), silence).then(
      () => true,
      // To an ended pool nothing can be given.
      (error: unknown) => error instanceof PoolClosedError,
    )
  for (let attempt = 1; attempt <= TRIES; attempt++) {
    if (await givenBack()) return
    await sleep(PAUSE_MS * attempt)
  }
  const endsAt = performance.now() + ttlMs
  const goOn = (pauseMs: number): void => {
    const timer = setTimeout(() => {
      void givenBack().then((done) => {
        if (!done && performance.now() < endsAt && !context.closing.closed)
          goOn(Math.min(2 * pauseMs, LONGEST_PAUSE_MS))
      })
    }, pauseMs)
    timer.unref()
  }
  goOn(PAUSE_MS * TRIES)
}

function blockerOf(row: TakeRow): Blocker {
  return {
    holder: row.holder ?? undefined,
    since: row.since === null ? undefined : new Date(Number(row.since)),
    leftMs: Number(row.left ?? 0),
    afterFailover: row.verdict === 'failover',
  }
}

function ttlTooLong(key: Key, ttlMs: number, most: number): InvalidOptionError {
  return new InvalidOptionError(`The lease on ${key} has ttlMs ${ttlMs}, and the schema allows ${most}.`, {
    advice:
      'Use a shorter ttlMs: heartbeats keep the lease alive. Or raise the limit with migrate({ maxTtlMs }): after a failover new leases wait as long.',
    keys: [key],
  })
}

function permitsDiffer(key: Key, wanted: number, stored: number): LeasePermitsDifferError {
  return new LeasePermitsDifferError(`${key} is held with ${stored} permits, and ${wanted} were asked for.`, {
    advice: 'All callers of one key must use the same number of permits.',
    keys: [key],
  })
}
