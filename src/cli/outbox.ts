import type { Call, Command, OptionName, Outcome } from './command.ts'
import { events } from './outboxEvents.ts'
import { importTable } from './outboxImport.ts'
import { redrive } from './outboxRedrive.ts'
import { replay } from './outboxReplay.ts'
import { split } from './outboxSplit.ts'
import { status, watchStatus } from './outboxStatus.ts'
import { erase, operate, parked } from './outboxStreams.ts'
import { rebase, remove, retain } from './outboxUpkeep.ts'
import { verify } from './outboxVerify.ts'
import { UsageError } from './usageError.ts'

/** One use of the command. */
interface Verb {
  /** How it is written, after the command's name. */
  readonly usage: string
  /** What it takes beside the database and `--json`. */
  readonly options: readonly OptionName[]
  /** How many words may follow it. */
  readonly words: number
  /** Checks the call before a database is asked. `advice` says how it is written. */
  run(call: Call, advice: string): Promise<Outcome>
}

const COMMON: readonly OptionName[] = ['url', 'schema', 'driver', 'json']

const VERBS: Readonly<Record<string, Verb>> = {
  status: { usage: 'status [--watch]', options: ['watch'], words: 0, run: status },
  parked: { usage: 'parked [--dispatcher NAME]', options: ['dispatcher', 'limit'], words: 0, run: parked },
  retry: { usage: 'retry TOPIC KEY', options: ['dispatcher'], words: 2, run: operate('retry') },
  skip: {
    usage: 'skip TOPIC KEY --reason TEXT',
    options: ['dispatcher', 'reason'],
    words: 2,
    run: operate('skip'),
  },
  pause: {
    usage: 'pause TOPIC KEY [--reason TEXT]',
    options: ['dispatcher', 'reason'],
    words: 2,
    run: operate('pause'),
  },
  resume: { usage: 'resume TOPIC KEY', options: ['dispatcher'], words: 2, run: operate('resume') },
  redrive: {
    usage:
      'redrive parked|dead (--topic TOPIC [--key KEY] | --id IDS | --error TEXT | --all) (--reason TEXT | --preview)',
    options: ['dispatcher', 'topic', 'key', 'id', 'error', 'all', 'limit', 'reason', 'preview'],
    words: 1,
    run: redrive,
  },
  events: {
    usage: 'events [--topic TOPIC [--key KEY]] [--since TIME] [--until TIME] [--newest]',
    options: ['topic', 'key', 'from-seq', 'to-seq', 'since', 'until', 'newest', 'limit', 'cursor', 'payloads'],
    words: 0,
    run: events,
  },
  import: {
    usage:
      'import --table TABLE (--topic TOPIC --key KEY --order COLUMN (--reason TEXT | --preview) | --finish --reason TEXT)',
    options: [
      'table',
      'topic',
      'key',
      'order',
      'id',
      'payload',
      'headers',
      'sent',
      'wait',
      'reason',
      'preview',
      'finish',
    ],
    words: 0,
    run: importTable,
  },
  replay: {
    usage: 'replay [--topic TOPIC [--key KEY]] [--sink FILE]',
    options: ['topic', 'key', 'from-seq', 'to-seq', 'from-position', 'sink'],
    words: 0,
    run: replay,
  },
  retain: { usage: 'retain --older-than TIME', options: ['older-than'], words: 0, run: retain },
  erase: { usage: 'erase TOPIC KEY --reason TEXT', options: ['reason'], words: 2, run: erase },
  rebase: {
    usage: 'rebase --deliver undelivered|all|none (--reason TEXT | --preview)',
    options: ['deliver', 'reason', 'preview'],
    words: 0,
    run: rebase,
  },
  remove: { usage: 'remove DISPATCHER --reason TEXT', options: ['reason'], words: 1, run: remove },
  split: {
    usage: 'split DISPATCHER --shards N (--reason TEXT | --preview)',
    options: ['shards', 'reason', 'preview'],
    words: 1,
    run: split,
  },
  verify: { usage: 'verify [FILE] [--part]', options: ['part'], words: 1, run: verify },
}

export const outboxCommand: Command = {
  name: 'outbox',
  summary: 'Show what the outbox has delivered and which streams wait. Retry, skip, replay and more',
  usage: '[VERB]',
  details: `A stream is a topic and a key. The verbs:

  status   Show who delivers which shard, and its lag; then the segments that store the events. The default
  parked   List the streams that wait: for another attempt, for a time, or for you
  retry    TOPIC KEY: Retry a stream that waits, now
  skip     TOPIC KEY --reason TEXT: Give up the first event of a stream that waits. A tombstone replaces it, and the stream continues
  pause    TOPIC KEY: Stop the delivery of a stream. Its events are kept in order
  resume   TOPIC KEY: Continue a paused stream
  redrive  parked|dead: Retry many streams, or enqueue dead letters again, by topic, key, id or error
  events   List the retained events, by topic, key, number and time, page by page
  import   --table TABLE: Import your own outbox table while its writers continue. You can interrupt it and run it again
  replay   Send retained events again, in order: as JSON lines on standard output, or to a sink
  retain   --older-than TIME: Empty segments that every dispatcher has passed
  erase    TOPIC KEY --reason TEXT: Remove the payloads of a stream permanently. Numbers and order stay
  rebase   --deliver undelivered|all|none --reason TEXT: After a restore, make the cursors valid on this server
  remove   DISPATCHER --reason TEXT: Remove a dispatcher that no process runs any more. Segments no longer wait for it
  split    DISPATCHER --shards N --reason TEXT: Split its shards while it runs, into at most 512
  verify   [FILE]: Read JSON lines with topic, key, seq and id, and fail if the order of a stream is broken

redrive, import, rebase and split only show what they would do with --preview.
Write -- before a word that begins with a dash: pg-lockstep outbox retry -- trades -1`,
  examples: [
    { line: 'pg-lockstep outbox', does: 'show who delivers which shard, and its lag' },
    { line: 'pg-lockstep outbox parked', does: 'list the streams that wait, with the reason' },
    { line: 'pg-lockstep outbox retry trades 42', does: 'retry after you have fixed the cause' },
    {
      line: 'pg-lockstep outbox skip trades 42 --reason "price withdrawn"',
      does: 'give up the first event of the stream',
    },
    {
      line: 'pg-lockstep outbox redrive dead --topic mails --error timeout --preview',
      does: 'show which dead letters it would enqueue again',
    },
    { line: 'pg-lockstep outbox events --topic trades --key 42 --newest', does: 'list the newest events of a stream' },
    { line: 'pg-lockstep outbox replay --topic trades --key 42 --from-seq 100', does: 'print events as JSON lines' },
    {
      line: 'pg-lockstep outbox import --table outbox_event --topic {aggregatetype} --key {aggregateid} --order id --preview',
      does: 'show what it would import from your outbox table',
    },
    { line: 'pg-lockstep outbox retain --older-than 7d', does: 'empty segments older than 7 days' },
    { line: 'pg-lockstep outbox split default --shards 64 --preview', does: 'show what a split would do' },
    { line: 'pg-lockstep outbox verify consumed.jsonl', does: 'check the order of consumed events' },
  ],
  options: [...COMMON, ...new Set(Object.values(VERBS).flatMap(({ options }) => options))],
  words: Object.keys(VERBS),
  moreWords: 2,
  fillsStdout: ({ words, values }) => words[0] === 'replay' && values.sink === undefined,
  async run(call) {
    const { verb, advice } = verbOf(call)
    return verb.run(call, advice)
  },
  async watch(call, show, stop) {
    verbOf(call)
    return watchStatus(call, show, stop)
  },
}

/** What is to be done, if its options and the number of its words make sense. */
function verbOf({ words: [name = 'status', ...words], values }: Call): { verb: Verb; advice: string } {
  const verb = VERBS[name] as Verb
  const advice = `Write \`pg-lockstep outbox ${verb.usage}\`.`
  const given = Object.keys(values) as OptionName[]
  const stray = given.find((option) => ![...COMMON, ...verb.options].includes(option))
  if (stray !== undefined) {
    const takers = Object.entries(VERBS).flatMap(([taker, { options }]) => (options.includes(stray) ? [taker] : []))
    const whose = takers.map((taker) => `\`outbox ${taker}\``).join(', ')
    throw new UsageError(`--${stray} is for ${whose}.`, advice)
  }
  const excess = words[verb.words]
  if (excess !== undefined) {
    throw new UsageError(`\`outbox ${name}\` cannot do anything with ${JSON.stringify(excess)}.`, advice)
  }
  return { verb, advice }
}
