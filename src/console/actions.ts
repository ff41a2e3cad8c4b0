import type { DispatchedStream, Key, OperatorOptions } from '../index.ts'
import { InvalidOptionError, StreamNotParkedError } from '../index.ts'
import type { ConsoleLockstep, ConsolePlan } from './consoleOptions.ts'
import type { Client } from './origin.ts'
import { MANY } from './searches.ts'
import type { Done, OnMany, ReleaseLease, ReplayStream, SkipEvent, StreamAction, Tab } from './wire.ts'

/** What operators do, by the path it is asked for under. */
export interface Action {
  /** What has changed by it. */
  readonly tab: Tab
  /** `by`: who asks for it and from where, for the audit. */
  run(on: ActedOn, body: unknown, by: string): Promise<Done>
}

/** What operators act on. */
export interface ActedOn {
  readonly lockstep: ConsoleLockstep
  readonly replayTo: ConsolePlan['replayTo']
}

export const ACTIONS: ReadonlyMap<string, Action> = new Map([
  ['leases/release', { tab: 'leases', run: release }],
  ['outbox/redrive', { tab: 'outbox', run: redriveMany }],
  ['outbox/skip-many', { tab: 'outbox', run: skipMany }],
  ['outbox/replay', { tab: 'outbox', run: replayStream }],
  ['outbox/remove', { tab: 'outbox', run: removeDispatcher }],
  [
    'outbox/retry',
    onStream(async (lockstep, stream, by) => {
      await lockstep.outbox.retry(...audited(stream, by))
      return `${nameOf(stream)} is tried again now.`
    }),
  ],
  [
    'outbox/pause',
    onStream(async (lockstep, stream, by) => {
      await lockstep.outbox.pause(...audited(stream, by))
      return `${nameOf(stream)} is paused, from the next batch on.`
    }),
  ],
  [
    'outbox/resume',
    onStream(async (lockstep, stream, by) => {
      await lockstep.outbox.resume(...audited(stream, by))
      return `${nameOf(stream)} goes on.`
    }),
  ],
  [
    'outbox/skip',
    onStream(async (lockstep, stream, by, body) => {
      const { seq, headId } = body as Partial<SkipEvent>
      if (!Number.isSafeInteger(seq)) throw malformed('seq', 'the number of the event at the head')
      const seen = { seq: seq as number, headId: headId == null ? undefined : textOf(body, 'headId') }
      const { reason, ...which } = stream
      await lockstep.outbox.skip({ ...which, ...seen }, { reason, by })
      return `Event ${seq} of ${nameOf(stream)} is given up: a tombstone replaces it.`
    }),
  ],
])

/** Who acts, for the audit: the name from the proxy or the login, and the address of the client. */
export function auditName({ name = 'operator', address }: Client): string {
  return `console (${name}${address === undefined ? '' : `@${address}`})`
}

/** The stream, and what is written into the audit. */
function audited({ reason, ...stream }: StreamAction, by: string): [DispatchedStream, OperatorOptions] {
  return [stream, { by, reason }]
}

async function release({ lockstep }: ActedOn, body: unknown, by: string): Promise<Done> {
  const { terminate } = (body ?? {}) as Partial<ReleaseLease>
  const [key, reason] = [textOf(body, 'key'), reasonOf(body)]
  if (typeof terminate !== 'boolean') throw malformed('terminate', 'true or false')
  const { released } = await lockstep.leases.forceRelease(key as Key, { by, reason, terminate })
  const whom = released === 1 ? 'its holder' : `its ${released} holders`
  return said(released === 0 ? `${key} is not held: nothing was taken away.` : `${key} was taken away from ${whom}.`)
}

/** Those that the operator has seen in the preview, by their ids: what has changed since is left alone. */
function onMany(body: unknown): { what: OnMany['what']; dispatcher: string; ids: readonly string[]; reason: string } {
  const { what, ids } = (body ?? {}) as Partial<OnMany>
  if (what !== 'parked' && what !== 'dead') throw malformed('what', 'parked or dead')
  if (!Array.isArray(ids) || ids.length === 0 || ids.length > MANY) throw malformed('ids', `1 to ${MANY} ids`)
  return { what, dispatcher: textOf(body, 'dispatcher'), ids, reason: reasonOf(body) }
}

async function redriveMany({ lockstep }: ActedOn, body: unknown, by: string): Promise<Done> {
  const { what, ...options } = onMany(body)
  const { redriven } =
    what === 'dead'
      ? await lockstep.outbox.redrive('dead', { ...options, limit: MANY, by })
      : await lockstep.outbox.redrive('parked', { ...options, limit: MANY, by })
  const rest = options.ids.length - redriven
  const done = what === 'dead' ? 'enqueued again' : 'tried again now'
  return said(`${redriven} of ${options.ids.length} ${done}.${rest === 0 ? '' : ` ${rest} changed meanwhile.`}`)
}

/** Gives up the heads of many streams, each by itself: one that has got through meanwhile stays as it is. */
async function skipMany({ lockstep }: ActedOn, body: unknown, by: string): Promise<Done> {
  const { what, dispatcher, ids, reason } = onMany(body)
  if (what !== 'parked') throw malformed('what', 'parked: a dead letter was given up already')
  const { found } = await lockstep.outbox.redrive('parked', { dispatcher, ids, limit: MANY, preview: true })
  let skipped = 0
  for (const { topic, key, head, headId } of found) {
    if (head === undefined || headId === undefined) continue
    try {
      await lockstep.outbox.skip({ dispatcher, topic, key, seq: head, headId }, { reason, by })
      skipped++
    } catch (error) {
      if (!(error instanceof StreamNotParkedError)) throw error
    }
  }
  const rest = ids.length - skipped
  return said(`${skipped} of ${ids.length} given up.${rest === 0 ? '' : ` ${rest} changed meanwhile.`}`)
}

/** Events of one replay in the console; more are for the command line. */
const MOST_REPLAYED = 1000

async function replayStream({ lockstep, replayTo }: ActedOn, body: unknown, by: string): Promise<Done> {
  const [to, topic, key, reason] = [textOf(body, 'to'), textOf(body, 'topic'), textOf(body, 'key'), reasonOf(body)]
  const { fromSeq, toSeq } = body as Partial<ReplayStream>
  const range = [fromSeq, toSeq]
  if (!range.every((seq): seq is number => Number.isSafeInteger(seq)) || Number(toSeq) < Number(fromSeq))
    throw malformed('fromSeq or toSeq', 'the first and the last number')
  if (Number(toSeq) - Number(fromSeq) >= MOST_REPLAYED) throw malformed('toSeq', `${MOST_REPLAYED} events at most`)
  if (!Object.hasOwn(replayTo, to)) throw malformed('to', 'the name of a sink of `replayTo`')
  const sink = replayTo[to] as NonNullable<(typeof replayTo)[string]>
  const { events } = await lockstep.outbox.replay({
    sink,
    topic,
    key,
    reason,
    by,
    fromSeq: Number(fromSeq),
    toSeq: Number(toSeq),
    signal: AbortSignal.timeout(REPLAY_MS),
  })
  return said(`${events} events of ${topic}/${key} were sent to ${to}.`)
}

/** A batch that was begun by then is completed. */
const REPLAY_MS = 30_000

async function removeDispatcher({ lockstep }: ActedOn, body: unknown, by: string): Promise<Done> {
  const [dispatcher, reason] = [textOf(body, 'dispatcher'), reasonOf(body)]
  await lockstep.outbox.removeDispatcher(dispatcher, { reason, by })
  return said(`The dispatcher ${dispatcher} is forgotten.`)
}

function onStream(
  work: (lockstep: ConsoleLockstep, stream: StreamAction, by: string, body: object) => Promise<string>,
): Action {
  return {
    tab: 'outbox',
    async run({ lockstep }, body, by) {
      const [dispatcher, topic, key] = [textOf(body, 'dispatcher'), textOf(body, 'topic'), textOf(body, 'key')]
      return said(await work(lockstep, { dispatcher, topic, key, reason: reasonOf(body) }, by, body as object))
    },
  }
}

function nameOf({ topic, key }: { readonly topic: string; readonly key: string }): string {
  return `${topic}/${key}`
}

function said(message: string): Done {
  return { ok: true, message }
}

function textOf(body: unknown, name: string): string {
  const value = (body as Readonly<Record<string, unknown>> | null)?.[name]
  if (typeof value === 'string' && value !== '') return value
  throw malformed(name, 'text')
}

/** Whatever an operator does is written down with why. */
function reasonOf(body: unknown): string {
  const { reason } = (body ?? {}) as Partial<StreamAction>
  if (typeof reason === 'string' && reason.trim() !== '') return reason.trim()
  throw malformed('reason', 'the reason, which is recorded')
}

function malformed(name: string, wanted: string): InvalidOptionError {
  return new InvalidOptionError(`\`${name}\` is missing or malformed.`, { advice: `Give ${wanted}.` })
}
