import type { OptionName } from './command.ts'

export interface OptionDescription {
  readonly type: 'string' | 'boolean'
  /** How help names its value. */
  readonly value: string
  readonly summary: string
  /** What completion offers for its value. */
  readonly choices?: readonly string[]
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
    summary: 'pg or postgres. Default: the one that is installed in the working directory, pg first',
    choices: ['pg', 'postgres'],
  },
  to: {
    type: 'string',
    value: 'N|ROLE',
    summary: 'of migrate: stop at this version, default the newest; of grants: the role of the database',
  },
  as: {
    type: 'string',
    value: 'NAMES',
    summary:
      'what the role is to do: producer, application, dispatcher, consumer, operator, observer; with commas between',
  },
  apply: { type: 'boolean', value: '', summary: 'run the statements, as the owner of the schema' },
  'max-event-bytes': {
    type: 'string',
    value: 'N',
    summary:
      'the largest event of the outbox, payload and headers together. Default: leave it; in a new schema 1000000',
  },
  preview: { type: 'boolean', value: '', summary: 'only show what it would do' },
  'max-ttl': {
    type: 'string',
    value: 'MS',
    summary:
      'the longest ttl of a lease: after a failover, new leases wait for it. Default: leave it; in a new schema 60,000',
  },
  'synchronous-failover': {
    type: 'string',
    value: 'yes|no',
    summary: 'states that only a standby with every acknowledged commit is promoted: then new leases do not wait',
  },
  watch: { type: 'boolean', value: '', summary: 'refresh it every second, until Ctrl-C' },
  statements: {
    type: 'boolean',
    value: '',
    summary: 'also the statement that each session runs; it may hold values of your users',
  },
  reason: { type: 'string', value: 'TEXT', summary: 'why, for those who read it later' },
  prefix: { type: 'string', value: 'TEXT', summary: 'only keys that begin so, such as Instance:' },
  by: { type: 'string', value: 'NAME', summary: 'who takes it away. Default: your name on this machine' },
  terminate: { type: 'boolean', value: '', summary: 'end the sessions in which the holder has a transaction open' },
  wait: {
    type: 'string',
    value: 'MS',
    summary: 'how long to wait for an open transaction: of the holder, or of a writer to the table. Default: 5000',
  },
  limit: { type: 'string', value: 'N', summary: 'at most so many. Default: 100' },
  dispatcher: { type: 'string', value: 'NAME', summary: 'of which dispatcher. Default: default, and for the list all' },
  topic: {
    type: 'string',
    value: 'TOPIC',
    summary: 'only events of this topic; of import: the topic, with columns in braces',
  },
  key: {
    type: 'string',
    value: 'KEY',
    summary:
      'of outbox, with --topic: only events of this stream; of import and guard: the key of a row, such as {id} and Account:{id}',
  },
  lease: { type: 'boolean', value: '', summary: 'a writer has to hold a lease, not a lock' },
  id: {
    type: 'string',
    value: 'IDS|COLUMN',
    summary:
      'of redrive: only these events, with commas between: dead letters, or heads of streams; of import: the column that is unique, default that of --order',
  },
  error: { type: 'string', value: 'TEXT', summary: 'only where the reason has this text in it' },
  all: { type: 'boolean', value: '', summary: 'all that there are' },
  since: {
    type: 'string',
    value: 'TIME',
    summary: 'only events of this time or later: 2026-11-15T14:00:00Z, or so long ago: 12h',
  },
  until: { type: 'string', value: 'TIME', summary: 'only events before this time' },
  newest: { type: 'boolean', value: '', summary: 'the newest first' },
  payloads: { type: 'boolean', value: '', summary: 'also payloads and headers, which only an operator can read' },
  cursor: { type: 'string', value: 'TEXT', summary: 'the next page, as the page before says' },
  table: {
    type: 'string',
    value: 'TABLE',
    summary: 'the outbox table that is imported, as in SQL: sales.outbox_event',
  },
  order: { type: 'string', value: 'COLUMN', summary: 'the column by which the old relay sorts' },
  payload: { type: 'string', value: 'COLUMN', summary: 'json, jsonb, text that is JSON, or bytea. Default: payload' },
  headers: { type: 'string', value: 'COLUMN', summary: 'an object of text, json or jsonb. Default: none' },
  sent: {
    type: 'string',
    value: 'COLUMN',
    summary:
      'says that the old relay has sent a row: null or false means not yet. Default: none, all rows are imported',
  },
  finish: { type: 'boolean', value: '', summary: 'remove the trigger: no old code writes to the table any more' },
  'from-seq': { type: 'string', value: 'N', summary: 'with --topic and --key: from this number on. Default: 1' },
  'to-seq': { type: 'string', value: 'N', summary: 'with --topic and --key: up to this number. Default: the last' },
  'from-position': { type: 'string', value: 'N', summary: 'only events after this position. Default: 0' },
  sink: {
    type: 'string',
    value: 'FILE',
    summary: 'a module whose default export is a sink or a function. Default: JSON lines on standard output',
  },
  'older-than': { type: 'string', value: 'TIME', summary: 'such as 30s, 15m, 12h or 7d' },
  shards: { type: 'string', value: 'N', summary: 'how many shards there will be: 2, 4, 8, … 512' },
  deliver: {
    type: 'string',
    value: 'WHAT',
    summary: 'what of a restored outbox is delivered: undelivered, all or none',
    choices: ['undelivered', 'all', 'none'],
  },
  part: { type: 'boolean', value: '', summary: 'a part of the events: a stream may begin with any number' },
  scenario: { type: 'string', value: 'NAMES', summary: 'only these, with commas between. Default: all' },
  fault: {
    type: 'string',
    value: 'NAMES',
    summary: 'only these kinds, with commas between; none for none. Default: all',
  },
  form: {
    type: 'string',
    value: 'FORM',
    summary: 'naive or lockstep. Default: first the one, then the other',
    choices: ['naive', 'lockstep'],
  },
  seed: { type: 'string', value: 'N', summary: 'what is done and when which fault strikes. Default: chance' },
  minutes: { type: 'string', value: 'M', summary: 'for how long, such as 0.5. Default: 3' },
  against: {
    type: 'string',
    value: 'URL',
    summary: 'a PostgreSQL of yours. Default: one that is started for the purpose',
  },
  anyway: { type: 'boolean', value: '', summary: 'although the server looks like one that people depend on' },
  cluster: { type: 'boolean', value: '', summary: 'on three servers under Patroni, whose primary is replaced' },
  asynchronous: {
    type: 'boolean',
    value: '',
    summary: 'with --cluster: COMMIT does not wait for a standby, and some are lost',
  },
  report: { type: 'string', value: 'FILE', summary: 'where the HTML report goes. Default: lockstep-prove.html' },
  picture: { type: 'string', value: 'FILE', summary: 'the picture of the first violation of a naive form, as SVG' },
  trace: { type: 'string', value: 'FILE', summary: 'what the outbox did, replayed against the model of its protocol' },
  port: {
    type: 'string',
    value: 'N',
    summary: 'where it listens, 0 for any port that is free. Default: 8400; of the database of dev: 54320',
  },
  host: { type: 'string', value: 'HOST', summary: 'on which address of this machine. Default: 127.0.0.1' },
  operator: { type: 'boolean', value: '', summary: 'the page may also change things' },
  people: {
    type: 'string',
    value: 'FILE',
    summary:
      'who can log in, each with a role and a token of their own: a JSON list, instead of --token and --operator',
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
  'payload-bytes': { type: 'string', value: 'N', summary: 'the payload of an event. Default: 250' },
  'leases-per-s': { type: 'string', value: 'N', summary: 'leases that are acquired and released a second. Default: 0' },
  'transactions-per-s': { type: 'string', value: 'N', summary: 'transactions with a lock a second. Default: 0' },
  'sink-per-s': {
    type: 'string',
    value: 'N',
    summary: 'events a second that the sink of one process takes. Default: 10000',
  },
  cores: { type: 'string', value: 'N', summary: 'of the database server. Default: as many as are needed, up to 64' },
  costs: {
    type: 'string',
    value: 'FILE',
    summary: 'costs that `npm run bench -- cost --keep FILE` has measured; needed',
  },
  json: { type: 'boolean', value: '', summary: 'answer with one JSON object on one line' },
}
