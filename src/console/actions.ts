import type { DispatchedStream, Key, OperatorOptions } from '../index.ts'
import { InvalidOptionError } from '../index.ts'
import type { ConsoleLockstep } from './consoleOptions.ts'
import type { Client } from './origin.ts'
import type { Done, ReleaseLease, SkipEvent, StreamAction, Tab } from './wire.ts'

/** What operators do, by the path it is asked for under. */
export interface Action {
  /** What has changed by it. */
  readonly tab: Tab
  /** `by`: who asks for it and from where, for the audit. */
  run(lockstep: ConsoleLockstep, body: unknown, by: string): Promise<Done>
}

export const ACTIONS: ReadonlyMap<string, Action> = new Map([
  ['leases/release', { tab: 'leases', run: release }],
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
      const { reason: _optional, ...which } = stream
      await lockstep.outbox.skip({ ...which, ...seen }, { reason: reasonOf(body, true), by })
      return `Event ${seq} of ${nameOf(stream)} is given up: a tombstone goes in its place.`
    }),
  ],
])

/** Who acts, for the audit: the name from the proxy or the login, and the address of the client. */
export function auditName({ name = 'operator', address }: Client): string {
  return `console (${name}${address === undefined ? '' : `@${address}`})`
}

/** The stream, and what is written into the audit. An empty reason is none. */
function audited({ reason, ...stream }: StreamAction, by: string): [DispatchedStream, OperatorOptions] {
  return [stream, reason === '' ? { by } : { by, reason }]
}

async function release(lockstep: ConsoleLockstep, body: unknown, by: string): Promise<Done> {
  const { terminate } = (body ?? {}) as Partial<ReleaseLease>
  const [key, reason] = [textOf(body, 'key'), reasonOf(body, true)]
  if (typeof terminate !== 'boolean') throw malformed('terminate', 'true or false')
  const { released } = await lockstep.leases.forceRelease(key as Key, { by, reason, terminate })
  const whom = released === 1 ? 'its holder' : `its ${released} holders`
  return said(released === 0 ? `${key} is not held: nothing was taken away.` : `${key} was taken away from ${whom}.`)
}

function onStream(
  work: (lockstep: ConsoleLockstep, stream: StreamAction, by: string, body: object) => Promise<string>,
): Action {
  return {
    tab: 'outbox',
    async run(lockstep, body, by) {
      const [dispatcher, topic, key] = [textOf(body, 'dispatcher'), textOf(body, 'topic'), textOf(body, 'key')]
      return said(await work(lockstep, { dispatcher, topic, key, reason: reasonOf(body, false) }, by, body as object))
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

/** Where it is not needed it may be empty. */
function reasonOf(body: unknown, needed: boolean): string {
  const { reason } = (body ?? {}) as Partial<StreamAction>
  if (typeof reason === 'string' && (reason.trim() !== '' || !needed)) return reason.trim()
  throw malformed('reason', 'why, for those who read it later')
}

function malformed(name: string, wanted: string): InvalidOptionError {
  return new InvalidOptionError(`\`${name}\` is missing or malformed.`, { advice: `Give ${wanted}.` })
}
