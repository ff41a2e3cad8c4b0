import type { OptionName } from './command.ts'

export interface OptionDescription {
  readonly type: 'string' | 'boolean'
  /** How help names its value. */
  readonly value: string
  readonly summary: string
  /** What completion offers for its value. */
  readonly choices?: readonly string[]
  /** Where it means something else: by command. */
  readonly in?: Readonly<Record<string, { readonly value?: string; readonly summary: string }>>
}

/** What an option means to a command. */
export function optionOf(command: string, option: OptionName): Omit<OptionDescription, 'in'> {
  const { in: elsewhere, ...description } = OPTIONS[option]
  return { ...description, ...elsewhere?.[command] }
}

/** Every option with its meaning; which command takes which stands in the command. */
export const OPTIONS: Readonly<Record<OptionName, OptionDescription>> = {
  url: {
    type: 'string',
    value: 'URL',
    summary: 'the database, postgres://user@host:port/name. Default: $DATABASE_URL',
  },
  schema: { type: 'string', value: 'NAME', summary: 'the schema of Lockstep’s tables. Default: lockstep' },
  driver: {
    type: 'string',
    value: 'NAME',
    summary: 'pg or postgres. Default: the installed one, pg first',
    choices: ['pg', 'postgres'],
  },
  to: {
    type: 'string',
    value: 'N',
    summary: 'stop at this version. Default: the newest',
    in: { grants: { value: 'ROLE', summary: 'the role of the database' } },
  },
  as: {
    type: 'string',
    value: 'NAMES',
    summary: 'roles, separated by commas: producer, application, dispatcher, consumer, operator, observer',
  },
  apply: { type: 'boolean', value: '', summary: 'run the statements, as the owner of the schema' },
  'max-event-bytes': {
    type: 'string',
    value: 'N',
    summary:
      'the maximum size of an event, payload and headers together. Default: unchanged; 1,000,000 in a new schema',
  },
  preview: { type: 'boolean', value: '', summary: 'only show what it would do' },
  'max-ttl': {
    type: 'string',
    value: 'MS',
    summary:
      'the longest ttl of a lease: new leases wait this long after a failover. Default: unchanged; 60,000 in a new schema',
  },
  'synchronous-failover': {
    type: 'string',
    value: 'yes|no',
    summary: 'states that you promote only standbys with every acknowledged commit: new leases then do not wait',
  },
  watch: { type: 'boolean', value: '', summary: 'refresh every second, until Ctrl-C' },
  statements: {
    type: 'boolean',
    value: '',
    summary: 'also show the statement of each session, which can contain values of your users',
  },
  reason: { type: 'string', value: 'TEXT', summary: 'the reason. It is recorded' },
  prefix: { type: 'string', value: 'TEXT', summary: 'only keys with this prefix, such as Instance:' },
  by: { type: 'string', value: 'NAME', summary: 'who takes it away. Default: your user name on this machine' },
  terminate: { type: 'boolean', value: '', summary: 'end the sessions in which the holder has a transaction open' },
  wait: {
    type: 'string',
    value: 'MS',
    summary: 'how long to wait for open transactions that write to the table. Default: 5000',
    in: { leases: { summary: 'how long to wait for an open transaction of the holder. Default: 5000' } },
  },
  limit: { type: 'string', value: 'N', summary: 'the maximum number of rows. Default: 100' },
  dispatcher: { type: 'string', value: 'NAME', summary: 'the dispatcher. Default: default; lists show all' },
  topic: {
    type: 'string',
    value: 'TOPIC',
    summary: 'only events of this topic. For import: the topic, with columns in braces',
    in: { consumers: { summary: 'only positions in streams of this topic' } },
  },
  key: {
    type: 'string',
    value: 'KEY',
    summary: 'with --topic: only events of this stream. For import: the key of a row, with columns in braces',
    in: { guard: { summary: 'the key of a row, with columns in braces: Account:{id}' } },
  },
  lease: { type: 'boolean', value: '', summary: 'writers must hold a lease, not a lock' },
  id: {
    type: 'string',
    value: 'IDS|COLUMN',
    summary:
      'for redrive: only these events, separated by commas: dead letters, or first events of streams. For import: a unique column. Default: that of --order',
  },
  error: { type: 'string', value: 'TEXT', summary: 'only if the reason contains this text' },
  all: { type: 'boolean', value: '', summary: 'all of them' },
  since: {
    type: 'string',
    value: 'TIME',
    summary: 'only events since this time: 2026-11-15T14:00:00Z, or 12h for twelve hours ago',
  },
  until: { type: 'string', value: 'TIME', summary: 'only events before this time' },
  newest: { type: 'boolean', value: '', summary: 'newest first' },
  payloads: { type: 'boolean', value: '', summary: 'also show payloads and headers, which only an operator can read' },
  cursor: { type: 'string', value: 'TEXT', summary: 'the next page: the value that the previous page printed' },
  table: {
    type: 'string',
    value: 'TABLE',
    summary: 'the outbox table to import, as in SQL: sales.outbox_event',
  },
  order: { type: 'string', value: 'COLUMN', summary: 'the column by which the old relay sorts' },
  payload: { type: 'string', value: 'COLUMN', summary: 'json, jsonb, text that is JSON, or bytea. Default: payload' },
  headers: { type: 'string', value: 'COLUMN', summary: 'an object of text, json or jsonb. Default: none' },
  sent: {
    type: 'string',
    value: 'COLUMN',
    summary: 'the column that marks rows as sent: null or false means not sent. Default: none, all rows are imported',
  },
  finish: { type: 'boolean', value: '', summary: 'remove the trigger, when no old code writes to the table any more' },
  'from-seq': { type: 'string', value: 'N', summary: 'with --topic and --key: the first number. Default: 1' },
  'to-seq': { type: 'string', value: 'N', summary: 'with --topic and --key: the last number. Default: the newest' },
  'from-position': { type: 'string', value: 'N', summary: 'only events after this position. Default: 0' },
  sink: {
    type: 'string',
    value: 'FILE',
    summary: 'a module whose default export is a sink or a function. Default: JSON lines on standard output',
  },
  'older-than': { type: 'string', value: 'TIME', summary: 'an age, such as 30s, 15m, 12h or 7d' },
  shards: { type: 'string', value: 'N', summary: 'the new number of shards: 2, 4, 8, … 512' },
  deliver: {
    type: 'string',
    value: 'WHAT',
    summary: 'which events of a restored outbox are delivered: undelivered, all or none',
    choices: ['undelivered', 'all', 'none'],
  },
  part: {
    type: 'boolean',
    value: '',
    summary: 'the file has only a part of the events: a stream can begin with any number',
  },
  scenario: { type: 'string', value: 'NAMES', summary: 'only these, separated by commas. Default: all' },
  fault: {
    type: 'string',
    value: 'NAMES',
    summary: 'only these kinds, separated by commas, or none. Default: all',
  },
  form: {
    type: 'string',
    value: 'FORM',
    summary: 'naive or lockstep. Default: first naive, then lockstep',
    choices: ['naive', 'lockstep'],
  },
  seed: { type: 'string', value: 'N', summary: 'repeats a run: the same operations and faults. Default: random' },
  minutes: { type: 'string', value: 'M', summary: 'the duration, such as 0.5. Default: 3' },
  against: {
    type: 'string',
    value: 'URL',
    summary: 'your own PostgreSQL. Default: prove starts one',
  },
  anyway: { type: 'boolean', value: '', summary: 'run even if the server looks like production' },
  cluster: { type: 'boolean', value: '', summary: 'run on three servers under Patroni, with failovers' },
  asynchronous: {
    type: 'boolean',
    value: '',
    summary: 'with --cluster: COMMIT does not wait for a standby, so some commits are lost',
  },
  report: { type: 'string', value: 'FILE', summary: 'the file for the HTML report. Default: lockstep-prove.html' },
  picture: {
    type: 'string',
    value: 'FILE',
    summary: 'a file for a picture of the first violation of a recipe, as SVG',
  },
  trace: {
    type: 'string',
    value: 'FILE',
    summary: 'a file for the trace of the outbox, which is checked against the model of its protocol',
  },
  port: {
    type: 'string',
    value: 'N',
    summary: 'the port, 0 for any free port. Default: 8400',
    in: { dev: { summary: 'the port of the database, 0 for any free port. Default: 54320' } },
  },
  host: { type: 'string', value: 'HOST', summary: 'the address to listen on. Default: 127.0.0.1' },
  operator: { type: 'boolean', value: '', summary: 'allow changes on the page' },
  people: {
    type: 'string',
    value: 'FILE',
    summary: 'a JSON list of users, each with a role and a token; instead of --token and --operator',
  },
  prometheus: {
    type: 'string',
    value: 'URL',
    summary: 'where its charts get the last hour from: the HTTP API of a Prometheus',
  },
  token: { type: 'string', value: 'TOKEN', summary: 'what one has to know to look. Default: $LOCKSTEP_CONSOLE_TOKEN' },
  data: { type: 'string', value: 'DIR', summary: 'where the database is kept. Default: .lockstep/data' },
  'events-per-s': { type: 'string', value: 'N', summary: 'events that are enqueued a second. Default: 0' },
  keys: { type: 'string', value: 'N', summary: 'over how many keys, equally hot. Default: 1000' },
  processes: { type: 'string', value: 'N', summary: 'processes that enqueue and deliver. Default: 2' },
  'payload-bytes': { type: 'string', value: 'N', summary: 'the size of a payload. Default: 250' },
  'leases-per-s': { type: 'string', value: 'N', summary: 'leases acquired and released per second. Default: 0' },
  'transactions-per-s': { type: 'string', value: 'N', summary: 'transactions with a lock per second. Default: 0' },
  'sink-per-s': {
    type: 'string',
    value: 'N',
    summary: 'events per second that the sink of one process can take. Default: 10000',
  },
  cores: { type: 'string', value: 'N', summary: 'cores of the database server. Default: as many as needed, up to 64' },
  costs: {
    type: 'string',
    value: 'FILE',
    summary: 'required: the costs that `npm run bench -- cost --keep FILE` measured',
  },
  json: { type: 'boolean', value: '', summary: 'print one JSON object on one line' },
}
