import { setTimeout as sleep } from 'node:timers/promises'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, ShardsBusyError } from '../errors.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { cursorsOfAnotherServer } from './cursorErrors.ts'
import { SHARDS } from './dispatcherOptions.ts'
import { onPrimary } from './onPrimary.ts'
import { audited, checkReason, type OperatorOptions } from './operatorOptions.ts'
import { beginSplit, splitShards } from './outbox.sql.ts'
import { resultRows } from './resultRows.ts'

/** What `outbox.split()` takes. */
export interface SplitOptions extends OperatorOptions {
  /** The new number of shards: 2, 4, … 512, larger than the current one. */
  readonly shards: number
  /** Reports what it would do, and changes nothing. Default false. */
  readonly preview?: boolean
}

const SPLIT_OPTIONS: OptionNames<SplitOptions> = { shards: true, preview: true, reason: true, by: true }

/** What a split has found, or would find. */
export interface SplitShards {
  readonly from: number
  readonly to: number
  /** Shards that a process had when it began. */
  readonly owned: number
  /**
   * Shards whose owner had not released them after two seconds, such as one that is frozen. Its current batch can be delivered twice. The parts of these shards continue when
   * the owner has released them, or when its `ttlMs` is over.
   */
  readonly notReleased: number
  readonly parkedStreams: number
}

/** How long owners release their shards, also if this process dies before it has split them. */
const PAUSE_MS = 5000
/** After this time it splits, even if not all owners have answered. */
const RELEASED_WITHIN_MS = 2000
const LOOK_MS = 10
/** An owner whose cursor is being moved for long. */
const TRIES = 5

interface Begun {
  readonly answer: 'ready' | 'no dispatcher' | 'shards' | 'elsewhere' | 'held'
  readonly shards: number
  readonly owned: number
  readonly parked: number
}

/** docs/decisions/0058-splitting-shards.md has the protocol. */
export async function split(context: LockstepContext, dispatcher: string, options: SplitOptions): Promise<SplitShards> {
  checkOptions('outbox.split()', options, SPLIT_OPTIONS)
  const { shards: to, preview = false } = options
  if (to === 1 || !SHARDS.includes(to)) {
    throw new InvalidOptionError(`shards is ${String(to)}.`, { advice: `Use one of ${SHARDS.slice(1).join(', ')}.` })
  }
  if (!preview) checkReason('split', options.reason)
  await context.ready()
  const before = await begin(context, dispatcher, to, preview ? undefined : PAUSE_MS)
  const { shards: from, owned, parked: parkedStreams } = before
  if (preview) return { from, to, owned, notReleased: 0, parkedStreams }
  try {
    const until = performance.now() + RELEASED_WITHIN_MS
    let { owned: held } = before
    while (held > 0 && performance.now() < until) {
      await sleep(LOOK_MS)
      ;({ owned: held } = await begin(context, dispatcher, to, undefined))
    }
    await cut(context, dispatcher, from, options)
    return { from, to, owned, notReleased: held, parkedStreams }
  } catch (error) {
    // Otherwise the pause ends by itself.
    await ask(context, beginSplit(context.quotedSchema, dispatcher, to, 0)).catch(() => undefined)
    throw error
  }
}

async function cut(context: LockstepContext, dispatcher: string, from: number, options: SplitOptions): Promise<void> {
  const text = splitShards(context.quotedSchema, dispatcher, from, options.shards, audited(options))
  let answer: string | null | undefined
  for (let tries = 0; tries < TRIES && (tries === 0 || answer === 'busy'); tries++) {
    answer = (await ask(context, text))?.['answer']
  }
  if (answer === 'done') return
  if (answer === 'held') throw stillHeld(dispatcher)
  if (answer === 'busy') {
    throw new ShardsBusyError(
      `The shards of the dispatcher ${dispatcher} could not be split: a cursor is being moved all the time.`,
      {
        advice: 'Nothing was changed. Look for a session that holds locks on outbox_cursors, and try again.',
      },
    )
  }
  throw new InvalidOptionError(`The shards of the dispatcher ${dispatcher} were split, or removed, at the same time.`, {
    advice: 'Look at `npx pg-lockstep outbox status`.',
  })
}

/** With `forMs`, owners release their shards for this time. */
async function begin(
  context: LockstepContext,
  dispatcher: string,
  shards: number,
  forMs: number | undefined,
): Promise<Begun> {
  const row = await ask(context, beginSplit(context.quotedSchema, dispatcher, shards, forMs))
  const begun: Begun = {
    answer: row?.['answer'] as Begun['answer'],
    shards: Number(row?.['shards']),
    owned: Number(row?.['owned']),
    parked: Number(row?.['parked']),
  }
  if (begun.answer === 'ready') return begun
  if (begun.answer === 'elsewhere') throw cursorsOfAnotherServer(dispatcher)
  if (begun.answer === 'held') throw stillHeld(dispatcher)
  if (begun.answer === 'shards') {
    throw new InvalidOptionError(`The dispatcher ${dispatcher} has ${begun.shards} shards already.`, {
      advice: 'Shards can only be split into more. For fewer of them use another name.',
    })
  }
  throw new InvalidOptionError(`There is no dispatcher ${dispatcher}.`, {
    advice: 'Look at `npx pg-lockstep outbox status`.',
  })
}

function stillHeld(dispatcher: string): ShardsBusyError {
  return new ShardsBusyError(
    `The shards of the dispatcher ${dispatcher} were split a moment ago, and an owner from before that still has one.`,
    { advice: 'Nothing was changed. Try again when its `ttlMs` is over.' },
  )
}

async function ask(
  context: LockstepContext,
  text: string,
): Promise<Readonly<Record<string, string | null>> | undefined> {
  return resultRows(await onPrimary(context, (connection) => connection.script(text)))[0]
}
