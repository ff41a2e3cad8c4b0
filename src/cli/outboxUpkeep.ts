import type { Lockstep, Rebased, Retained, SegmentStatus } from '../index.ts'
import type { Call, Outcome } from './command.ts'
import { forJson } from './forJson.ts'
import { parseDuration } from './parseValues.ts'
import { UsageError } from './usageError.ts'
import { userName } from './userName.ts'
import { withDatabase } from './withDatabase.ts'
import { count, formatSize, formatTime, singleLine } from './formatting.ts'

/** Empties old segments. */
export function retain({ values }: Call, advice: string): Promise<Outcome> {
  const given = values['older-than']
  if (given === undefined)
    throw new UsageError('--older-than is missing.', `${advice} TIME is an age, such as 30s, 15m, 12h or 7d.`)
  const olderThanMs = parseDuration('older-than', given)
  return withDatabase(values, async ({ lockstep }): Promise<Outcome> => {
    const { outbox, schema } = lockstep
    const before = await segmentsOf(lockstep)
    const retained = await outbox.retain({ olderThanMs })
    const kept = new Set((await segmentsOf(lockstep)).map(({ number }) => number))
    const gone = before.filter(({ number }) => !kept.has(number))
    return {
      exitCode: 0,
      json: { ok: true, command: 'outbox retain', schema, olderThanMs, ...retained, segments: forJson({ gone }).gone },
      text: () => describeRetained(retained, gone, given),
    }
  })
}

async function segmentsOf({ outbox }: Lockstep): Promise<readonly SegmentStatus[]> {
  return (await outbox.status()).segments
}

function describeRetained(
  { dropped, readied, rotated }: Retained,
  gone: readonly SegmentStatus[],
  olderThan: string,
): string {
  const ready =
    readied === 0
      ? ''
      : `\n${count(readied, 'segment')} ${readied === 1 ? 'was' : 'were'} made ready: say it again in a minute to drop ${readied === 1 ? 'it' : 'them'}, or leave that to a dispatcher.`
  const begun = `${ready}${rotated ? '\nA new segment was begun.' : ''}`
  if (dropped === 0 && readied > 0) return `Nothing was dropped yet.${begun}`
  if (dropped === 0) {
    return `Nothing was dropped: no segment was left ${olderThan} ago or earlier and has been passed by every dispatcher.${begun}`
  }
  // A dispatcher may have dropped some at the same time.
  const list = gone.map(
    ({ number, openedAt, leftAt, bytes }) =>
      `  segment ${number}: ${formatTime(openedAt)} to ${leftAt === undefined ? 'now' : formatTime(leftAt)}, ${formatSize(bytes)}`,
  )
  return [`${count(dropped, 'segment')} ${dropped === 1 ? 'was' : 'were'} dropped:`, ...list].join('\n') + begun
}

type Choice = 'undelivered' | 'all' | 'none'

const CHOICES =
  'Write --deliver undelivered for what was not delivered yet when the copy was made, so that what was delivered after that ' +
  'comes again; --deliver all for everything that is retained; or --deliver none, and only new events are sent.'

const PUT_ASIDE: Readonly<Record<Choice, string>> = {
  undelivered: 'What was undelivered in this copy',
  all: 'Everything that is retained',
  none: 'Nothing',
}

/** After a restore: chooses what is delivered. */
export function rebase({ values }: Call, advice: string): Promise<Outcome> {
  const { deliver, reason } = values
  const preview = values.preview !== undefined
  if (deliver === undefined) throw new UsageError('--deliver is missing.', CHOICES)
  if (reason === undefined && !preview) throw new UsageError('--reason is missing.', advice)
  const choice = deliver as Choice
  return withDatabase(values, async ({ lockstep }): Promise<Outcome> => {
    const { shards } = await lockstep.outbox.status()
    const dispatchers = [...new Set(shards.map(({ dispatcher }) => dispatcher))]
    const found = await lockstep.outbox.rebase({
      deliver: choice,
      preview,
      ...(reason === undefined ? {} : { reason }),
      by: userName(),
    })
    const json = {
      ok: true,
      command: 'outbox rebase',
      schema: lockstep.schema,
      deliver,
      reason: reason ?? null,
      preview,
      ...found,
      dispatchers,
    }
    return {
      exitCode: 0,
      json,
      text: () => (preview ? previewed(choice, found) : rebased(choice, found, dispatchers)) + tornBy(found),
    }
  })
}

function tornBy({ torn }: Rebased): string {
  if (torn.length === 0) return ''
  return `
The dump is torn: ${count(torn.length, 'segment')} (${torn.join(', ')}) ${torn.length === 1 ? 'was' : 'were'} emptied while it was made. Streams that had nothing newer begin with 1 again.
Restore another dump if there is one. Otherwise set the start of their consumers again.`
}

function previewed(choice: Choice, { putAside }: Rebased): string {
  const aside =
    putAside === 0 ? 'No event would be parked.' : `${PUT_ASIDE[choice]} would be parked, ${count(putAside, 'event')}.`
  return `${aside}\nNothing was changed. Run it again without --preview and with --reason.`
}

function rebased(choice: Choice, { putAside }: Rebased, dispatchers: readonly string[]): string {
  if (dispatchers.length === 0)
    return 'No dispatcher has run yet. The first one begins with the oldest event that there is.'
  const aside =
    putAside === 0
      ? 'No event was parked.'
      : `${PUT_ASIDE[choice]} was parked, ${count(putAside, 'event')}: dispatchers send it, stream by stream, in order.`
  return `${aside}\nThe cursors are good for this server: ${dispatchers.join(', ')}.`
}

/** Forgets a dispatcher that no process runs any more. */
export function remove({ words: [, dispatcher], values }: Call, advice: string): Promise<Outcome> {
  const { reason } = values
  if (dispatcher === undefined || dispatcher === '') throw new UsageError('No dispatcher was named.', advice)
  if (reason === undefined) throw new UsageError('--reason is missing.', advice)
  return withDatabase(values, async ({ lockstep }): Promise<Outcome> => {
    await lockstep.outbox.removeDispatcher(dispatcher, { reason, by: userName() })
    return {
      exitCode: 0,
      json: { ok: true, command: 'outbox remove', schema: lockstep.schema, dispatcher, reason },
      text: () => `The dispatcher ${singleLine(dispatcher)} is removed, and so are its parked events.`,
    }
  })
}
