import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, LeaseBusyError } from '../errors.ts'
import type { Key } from '../locks/index.ts'
import { codeOf, LOCK_NOT_AVAILABLE, SilenceWatch, withConnection } from '../postgres/index.ts'
import { checkWaitMs, type LockstepContext } from '../transactions/index.ts'
import { BEGIN_AND_PID, forceRelease as forceReleaseSql, ROLLBACK, terminateBlockers } from './leases.sql.ts'
import { checkText } from './options.ts'

/** Who takes a lease away, and why. Both are written into its history. */
export interface ForceReleaseOptions {
  readonly by: string
  readonly reason: string
  /**
   * How long to wait for an open transaction of the holder. Default 5,000, less than for a transaction, because an operator waits for the
   * answer.
   */
  readonly waitMs?: number
  /** Ends the sessions in which the holder has a transaction open, instead of waiting for them. Needs a second connection. */
  readonly terminate?: boolean
}

const FORCE_RELEASE_OPTIONS: OptionNames<ForceReleaseOptions> = {
  by: true,
  reason: true,
  waitMs: true,
  terminate: true,
}

const DEFAULT_WAIT_MS = 5000
const LOOK_MS = 50

export async function forceRelease(
  context: LockstepContext,
  key: Key,
  options: ForceReleaseOptions,
): Promise<{ readonly released: number }> {
  checkOptions('forceRelease()', options, FORCE_RELEASE_OPTIONS)
  const { by, reason, terminate = false, waitMs: given } = options
  const waitMs = checkWaitMs(given, DEFAULT_WAIT_MS)
  if (waitMs === false) {
    throw new InvalidOptionError('waitMs is false.', {
      advice: 'Use a number of milliseconds: forceRelease() needs a limit.',
    })
  }
  const text = forceReleaseSql(
    context.quotedSchema,
    key,
    checkText('by', by, 255),
    checkText('reason', reason, 1000),
    waitMs,
  )
  await context.ready()
  return withConnection(
    context.driver,
    async (connection) => {
      const begun = await connection.script(BEGIN_AND_PID)
      const pid = Number(begun.find((result) => result.rows.length > 0)?.rows[0]?.['pid'])
      const stop = terminate ? endBlockers(context, pid) : undefined
      try {
        const results = await connection.script(text)
        const row = results.find((result) => result.rows.length > 0)?.rows[0] as { released: string } | undefined
        return { released: Number(row?.released ?? 0) }
      } catch (error) {
        if (codeOf(error) !== LOCK_NOT_AVAILABLE) throw error
        await connection.script(ROLLBACK)
        throw busy(key, waitMs, error)
      } finally {
        stop?.()
      }
    },
    new SilenceWatch(context.silence.silenceMs + waitMs),
  )
}

/** Ends the sessions that block this one, one look at a time, until it is stopped. The last look is not awaited. */
function endBlockers(context: LockstepContext, pid: number): () => void {
  let looking = false
  const timer = setInterval(() => {
    if (looking) return
    looking = true
    withConnection(context.driver, (other) => other.script(terminateBlockers(pid)), context.silence).then(
      () => (looking = false),
      () => (looking = false),
    )
  }, LOOK_MS)
  return () => clearInterval(timer)
}

function busy(key: Key, waitMs: number, cause: unknown): LeaseBusyError {
  return new LeaseBusyError(
    `The lease on ${key} could not be taken away within ${waitMs} ms: its holder has a transaction open.`,
    {
      advice: 'Allow a longer waitMs, or set `terminate` to end that session.',
      keys: [key],
      cause,
    },
  )
}
