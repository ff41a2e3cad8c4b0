import type { DeadLetter, Lockstep, ParkedStream, Redriven, WaitingSelection } from '../index.ts'
import type { Call, Outcome } from './command.ts'
import { forJson } from './forJson.ts'
import { count, formatTime, shorten, singleLine } from './formatting.ts'
import { parseNumber } from './parseValues.ts'
import { table } from './table.ts'
import type { Terminal } from './terminal.ts'
import { UsageError } from './usageError.ts'
import { userName } from './userName.ts'
import { withDatabase } from './withDatabase.ts'

const NAME_WIDTH = 40
/** People read the first ones; programs get all. */
const SHOWN = 50
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

/** Many dead letters, or many streams that wait, at once. */
export function redrive(call: Call, advice: string): Promise<Outcome> {
  const { values, words } = call
  const what = words[1]
  if (what !== 'parked' && what !== 'dead') {
    throw new UsageError('Name parked or dead.', `${advice} parked: streams that wait. dead: dead letters.`)
  }
  const { dispatcher = 'default', reason } = values
  const [preview, all] = [values.preview !== undefined, values.all !== undefined]
  const selection = selectionOf(values, advice)
  if (Object.keys(selection).length > 0 === all) {
    throw new UsageError(
      all ? '--all and a selection exclude each other.' : 'No selection was given.',
      `${advice} Select with --id, --topic, --key or --error, or write --all.`,
    )
  }
  if (reason === undefined && !preview) throw new UsageError('--reason is missing.', advice)
  const limit = parseNumber('limit', values.limit ?? '1000')
  if (limit === 0 || limit > 100_000) throw new UsageError('--limit is 1 to 100000.', advice)
  return withDatabase(values, async ({ lockstep }): Promise<Outcome> => {
    const options = {
      ...selection,
      dispatcher,
      limit,
      preview,
      by: userName(),
      ...(all ? { all } : {}),
      ...(reason === undefined ? {} : { reason }),
    }
    const outcome = await redriven(lockstep, what, options)
    const { redriven: done, found, more } = outcome
    return {
      exitCode: 0,
      json: {
        ok: true,
        command: 'outbox redrive',
        schema: lockstep.schema,
        what,
        dispatcher,
        preview,
        reason: reason ?? null,
        redriven: done,
        more,
        streams: what === 'parked' ? forJson({ found }).found : [],
        deadLetters: what === 'dead' ? forJson({ found }).found : [],
      },
      text: (terminal) => report(what, outcome, preview, terminal),
    }
  })
}

function redriven(
  { outbox }: Lockstep,
  what: 'parked' | 'dead',
  options: Parameters<Lockstep['outbox']['redrive']>[1],
): Promise<Redriven<ParkedStream | DeadLetter>> {
  return what === 'parked' ? outbox.redrive(what, options) : outbox.redrive(what, options)
}

function selectionOf({ topic, key, id, error }: Call['values'], advice: string): WaitingSelection {
  if (key !== undefined && topic === undefined) throw new UsageError('--key needs --topic.', advice)
  const ids = id?.split(',').map((each) => each.trim())
  const wrong = ids?.find((each) => !UUID.test(each))
  if (wrong !== undefined) {
    throw new UsageError(`--id cannot be ${JSON.stringify(wrong)}.`, 'Use ids of events, with commas between.')
  }
  return {
    ...(topic === undefined ? {} : { topic }),
    ...(key === undefined ? {} : { key }),
    ...(ids === undefined ? {} : { ids }),
    ...(error === undefined ? {} : { error }),
  }
}

const isDead = (item: ParkedStream | DeadLetter): item is DeadLetter => 'diedAt' in item

function report(
  what: 'parked' | 'dead',
  { redriven: done, found, more }: Redriven<ParkedStream | DeadLetter>,
  preview: boolean,
  { columns, paint }: Terminal,
): string {
  const one = what === 'parked' ? 'stream' : 'dead letter'
  if (found.length === 0) return what === 'parked' ? 'No such stream waits.' : 'There is no such dead letter.'
  const head = ['TOPIC', 'KEY', 'NUMBER', what === 'parked' ? 'SINCE' : 'DIED', 'STATE', 'REASON']
  const rows = found
    .slice(0, SHOWN)
    .map((item) => [
      shorten(singleLine(item.topic), NAME_WIDTH),
      shorten(singleLine(item.key), NAME_WIDTH),
      `#${isDead(item) ? item.seq : (item.head ?? '-')}`,
      formatTime(isDead(item) ? item.diedAt : item.since),
      isDead(item) ? (item.usable ? 'dead' : 'unusable') : item.state,
      singleLine(item.reason ?? ''),
    ])
  const lines = [table([head.map((title) => paint('dim', title)), ...rows], columns)]
  if (found.length > SHOWN) lines.push(`… and ${count(found.length - SHOWN, one)} more.`)
  const further = more ? ' There are more: see --limit.' : ''
  const unusable = found.filter((item) => isDead(item) && !item.usable).length
  const left =
    unusable === 0
      ? ''
      : ` ${count(unusable, one)} cannot be enqueued again: erased, too large, or with malformed headers.`
  const would = what === 'parked' ? 'would be tried again now' : 'would be enqueued again'
  const was =
    what === 'parked' ? 'due: the dispatcher tries them again now' : 'enqueued again, at the end of their streams'
  const verdict = preview ? `${count(found.length - unusable, one)} ${would}.` : `${count(done, one)} ${was}.`
  return `${lines.join('\n')}\n\n${paint('bold', `${verdict}${left}${further}`)}`
}
