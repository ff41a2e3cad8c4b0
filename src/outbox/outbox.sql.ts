import { quoteLiteral, serverEpochExpression } from '../postgres/index.ts'
import type { DispatcherPlan } from './dispatcherOptions.ts'

/** The SQL of the outbox. Schema names arrive here already quoted; everything that decides is a function of the schema. */

/** By schema. The same text and not one like it: it is looked up for every event, and finding out that it is the same takes 3 us. */
const appending = new Map<string, string>()

export function appendEvent(schema: string): string {
  let text = appending.get(schema)
  if (text === undefined) {
    text = `SELECT ${schema}.outbox_append($1, $2, $3::text::json, $4::bytea, $5::text::json, $6::bigint, $7::uuid)`
    appending.set(schema, text)
  }
  return text
}

/** An event with a time. */
export function appendEventAt(schema: string): string {
  return `SELECT ${schema}.outbox_append_at($1, $2, $3::text::json, $4::bytea, $5::text::json, $8::timestamptz, $6::bigint, $7::uuid)`
}

export function appendEvents(schema: string): string {
  return `SELECT ${schema}.outbox_append_many_at($1::text[], $2::text[], $3::text[], $4::bytea[], $5::text[], $8::timestamptz[], $6::boolean, $7::bigint[])`
}

export function lockStreams(schema: string): string {
  return `SELECT ${schema}.outbox_lock($1::text[], $2::text[])`
}

/** Where a shard's cursor is to be, and the events that are parked with it. */
export interface Advance {
  readonly version: string
  readonly life: string
  readonly prev: string
  readonly next: string
  readonly afterId: number
  readonly done: boolean
  /** How far ids had been given out. */
  readonly seenId: string
  readonly waiting: string | undefined
}

/** What one shard wants in one message. */
export interface ShardRequest {
  readonly shard: number
  readonly fence: bigint
  /** The history in which the fence was given out. */
  readonly history: string
  readonly advance: Advance | undefined
  readonly unpark: readonly { readonly topic: string; readonly key: string }[]
  /** The maximum number of events. */
  readonly most: number
}

/** What the audit records with an operator's verb. */
export interface Audited {
  readonly reason?: string | undefined
  readonly by?: string | undefined
}

/** The functions look again after they have waited: that needs a level at which each statement sees what is committed by then. */
function alone(statement: string): string {
  return `BEGIN ISOLATION LEVEL READ COMMITTED; ${statement}; COMMIT`
}

/** Not one that a session may have by chance; closed in the message in which it is opened. */
const ROWS = 'lockstep_outbox_rows'

/**
 * Reads in a transaction, and sends what it has read when that has ended. A process that is stopped while the server sends it its
 * events may stay so forever: the server waits for it (ClientWrite), and neither a timeout nor a cancel ends that. Inside the
 * transaction it would hold its locks, so that no segment could be emptied, and its snapshot, so that nothing could be vacuumed. `then`
 * is in the same transaction, and executed first: the query of a cursor WITH HOLD runs at COMMIT. `behind` is a transaction of its own
 * between both: behind the FETCH, which begins a transaction with the session's isolation, it could not choose its own. (Of 8,000 events in a message it takes 2 ms of 43, of none 0.08 ms of 1.5.)
 */
function sentAfterwards(select: string, then = '', before = '', behind = ''): string {
  return `BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; ${before} DECLARE ${ROWS} NO SCROLL CURSOR WITH HOLD FOR ${select}; ${then} COMMIT; ${behind}
    FETCH ALL FROM ${ROWS}; CLOSE ${ROWS}`
}

/** After a failure: whether it was because the server is a standby. */
export const ROLL_BACK_AND_ASK = 'ROLLBACK; SELECT pg_is_in_recovery()::text AS standby'

const textArray = (values: readonly string[]): string => `ARRAY[${values.map(quoteLiteral).join(', ')}]::text[]`

/** If nothing is parked, all cursors are moved at once. */
function moved(schema: string, name: string, questions: readonly ShardRequest[]): string[] {
  const moves = questions.flatMap(({ shard, fence, advance }) =>
    advance === undefined ? [] : [{ shard, fence, ...advance }],
  )
  const plain = moves.filter(({ waiting }) => waiting === undefined)
  const list = (of: (move: (typeof plain)[number]) => unknown): string => plain.map((move) => String(of(move))).join()
  const texts = (of: (move: (typeof plain)[number]) => string): string => list((move) => quoteLiteral(of(move)))
  const together =
    plain.length === 0
      ? []
      : [
          `${schema}.outbox_move(${name}, '{${list(({ shard }) => shard)}}', '{${list(({ fence }) => fence)}}',
             '{${list(({ version }) => version)}}', ARRAY[${texts(({ life }) => life)}]::text[],
             ARRAY[${texts(({ prev }) => prev)}]::pg_snapshot[], ARRAY[${texts(({ next }) => next)}]::pg_snapshot[],
             '{${list(({ afterId }) => afterId)}}', '{${list(({ done }) => done)}}', '{${list(({ seenId }) => seenId)}}')`,
        ]
  const apart = moves.flatMap(({ shard, fence, version, life, prev, next, afterId, done, seenId, waiting }) =>
    waiting === undefined
      ? []
      : [
          `${schema}.outbox_advance(${name}, ${shard}::smallint, ${fence}, ${version}, ${quoteLiteral(life)},
             ${quoteLiteral(prev)}, ${quoteLiteral(next)}, ${afterId}, ${done}, ${seenId}, ${quoteLiteral(waiting)})`,
        ],
  )
  return [...together, ...apart]
}

/**
 * Moves cursors, then reads on, in one message: two transactions, because the reader must have no transaction id. Of what could
 * not be moved the row still says where it is, and the reading goes by that. All cursors are moved before any stream is taken out of
 * those that wait: all that lock both tables use that order.
 */
export function moveAndFetch(
  schema: string,
  dispatcher: string,
  questions: readonly ShardRequest[],
  shards: number,
  rungAt?: string,
): string {
  const name = quoteLiteral(dispatcher)
  const advances = moved(schema, name, questions)
  const unparks = questions.flatMap(({ shard, fence, history, unpark }) =>
    unpark.length === 0
      ? []
      : [
          `${schema}.outbox_unpark(${name}, ${shard}::smallint, ${fence}, ${quoteLiteral(history)},
             ${textArray(unpark.map(({ topic }) => topic))}, ${textArray(unpark.map(({ key }) => key))})`,
        ],
  )
  const moves = [...advances, ...unparks]
  const move =
    moves.length === 0
      ? ''
      : `BEGIN ISOLATION LEVEL READ COMMITTED; ${moves.map((each) => `SELECT ${each};`).join(' ')} COMMIT;`
  const shardList = questions.map(({ shard }) => shard).join(', ')
  const fenceList = questions.map(({ fence }) => String(fence)).join(', ')
  const mostList = questions.map(({ most }) => most).join(', ')
  const read = `SELECT * FROM ${schema}.outbox_read(
    ${name}, ARRAY[${shardList}]::smallint[], ARRAY[${fenceList}]::bigint[], ARRAY[${mostList}], ${shards})`
  const rung = rungAt === undefined ? '' : `SET LOCAL lockstep.outbox_rung_at = ${quoteLiteral(rungAt)};`
  const flush = `${alone(`SELECT flushed FROM ${schema}.outbox_flush_read()`)};`
  return `${move} ${sentAfterwards(read, '', rung, flush)}`
}

/** Notifies dispatchers that wait. */
export function ringBell(schema: string, hint: string): string {
  return `SELECT ${schema}.outbox_ring(${quoteLiteral(hint)})::text AS rung`
}

/** Registers for the bell for this time; undefined: removes the registration. */
export function listenForBell(schema: string, listener: string, forMs: number | undefined): string {
  return alone(`SELECT ${schema}.outbox_listen('${listener}', ${forMs ?? 'NULL'})`)
}

/** That it wants to hear the bell, whether there is anything to do, and when there will be: one after the other, so that writers ring for what comes after the look. */
export function lookAndListen(
  schema: string,
  dispatcher: string,
  shards: number,
  listener: string,
  forMs: number,
): string {
  const look = `SELECT l.stirred::text AS stirred, l.due_ms::text AS due_ms
    FROM ${schema}.outbox_look_ahead(${quoteLiteral(dispatcher)}, ${shards}) AS l`
  return `${listenForBell(schema, listener, forMs)}; ${alone(look)}`
}

/** The shards in which there is something to do. */
export function shardsToDrain(schema: string, dispatcher: string, shards: number): string {
  return alone(`SELECT array_to_json(${schema}.outbox_todo(${quoteLiteral(dispatcher)}, ${shards}))::text AS todo`)
}

export function askBackendPid(): string {
  return 'SELECT pg_backend_pid()::text AS pid'
}

/** For as long as the session is there: shared, because an earlier session of the process may still be ending. */
export function markSession(id: string): string {
  return `SET idle_session_timeout = 0; SELECT pg_advisory_lock_shared(${id})`
}

/** Which of the sessions that shards name are not there, and ends the leases of those that were not there before either. */
export function endLeasesOfGone(
  schema: string,
  dispatcher: string,
  shards: number,
  suspects: readonly string[],
  by: string,
): string {
  return alone(`SELECT array_to_json(g.absent::text[])::text AS absent, g.ended::text AS ended
    FROM ${schema}.outbox_gone(${quoteLiteral(dispatcher)}, ${shards}, '{${suspects.join()}}', ${quoteLiteral(by)}) AS g`)
}

/** How many shards a dispatcher has, how many processes run it, the place of one of them, and which shards are held. */
export function sharesOf(schema: string, dispatcher: string, member: string): string {
  return `SELECT s.shards::text AS shards, s.members::text AS members, s.place::text AS place, array_to_json(s.held)::text AS held
    FROM ${schema}.outbox_shares(${quoteLiteral(dispatcher)}, ${quoteLiteral(member)}) AS s`
}

export function flushToDisk(schema: string): string {
  return alone(`SELECT life, place::text AS place FROM ${schema}.outbox_flush()`)
}

/** Whether the synchronous standbys have this position of the WAL. Null if the role has no right to see it. */
export function isReplicated(schema: string, place: string): string {
  return `SELECT ${schema}.outbox_replicated(${quoteLiteral(place)})::text AS replicated`
}

/** A shard in the hands of its owner: with this fence, which was given out in this history. */
export interface OwnedShard {
  readonly dispatcher: string
  readonly shard: number
  readonly fence: bigint
  readonly history: string
}

function ownedBy({ dispatcher, shard, fence, history }: OwnedShard): string {
  return `${quoteLiteral(dispatcher)}, ${shard}::smallint, ${fence}, ${quoteLiteral(history)}`
}

const topicList = (topics: readonly string[] | null): string => (topics === null ? 'NULL' : textArray(topics))

/** As a process whose list of topics is this one. */
export function takeShard(
  schema: string,
  owned: OwnedShard,
  { shards, topics }: Pick<DispatcherPlan, 'shards' | 'topics'>,
): string {
  return alone(`SELECT ${schema}.outbox_take_shard(${ownedBy(owned)}, ${shards}, ${topicList(topics)}) AS taken`)
}

/** Makes a list of topics that of the dispatcher; if it has begun, only with `change`. */
export function subscribeTo(schema: string, name: string, topics: readonly string[] | null, change: boolean): string {
  return alone(`SELECT s.answer, array_to_json(s.before)::text AS before, s.topics_after::text AS topics_after
    FROM ${schema}.outbox_subscribe(${quoteLiteral(name)}, ${topicList(topics)}, ${change}) AS s`)
}

export function parkedDue(schema: string, owned: OwnedShard, maxStreams: number, maxEvents: number): string {
  return sentAfterwards(`SELECT * FROM ${schema}.outbox_parked_due(${ownedBy(owned)}, ${maxStreams}, ${maxEvents})`)
}

export function parkedTried(schema: string, owned: OwnedShard, outcomes: string): string {
  return alone(`SELECT ${schema}.outbox_parked_tried(${ownedBy(owned)}, ${quoteLiteral(outcomes)})`)
}

export function registerDispatcher(
  schema: string,
  { name, shards, shardsStated, retainMs }: DispatcherPlan,
  here: { system: string; database: string; timeline: string },
  known: string | undefined,
): string {
  const values = [name, here.system, here.database].map(quoteLiteral)
  return alone(`SELECT shards::text AS shards, system, database, timeline::text AS timeline, begun::text AS begun, was_split::text AS was_split
    FROM ${schema}.outbox_register_dispatcher(
    ${values[0]}, ${shards}::smallint, ${values[1]}, ${values[2]}, ${parseInt(here.timeline, 16)}, ${shardsStated},
    ${retainMs === false ? 'NULL' : retainMs}, ${known ?? 'NULL'})`)
}

const interval = (ms: number): string => `make_interval(secs => ${ms / 1000})`

/** What is old enough to go: so old, or as old as the registered dispatchers want it. */
export type Age = { readonly olderThanMs: number; readonly rotateMs: number } | 'as registered'

/**
 * Each step a transaction of its own: a slot is made known before it is used, and sealed after it was left. What is emptied was made
 * ready by an earlier round; that comes last, see below.
 */
export function rotateSegments(schema: string, age: Age): string {
  const [rotate, old] = age === 'as registered' ? ['NULL', 'NULL'] : [interval(age.rotateMs), interval(age.olderThanMs)]
  const steps = [
    `outbox_prepare_segment(${rotate}) AS prepared`,
    'outbox_rotate()::text AS rotated',
    'outbox_seal() AS sealed',
    `outbox_drop(${old}) AS dropped`,
  ]
  return steps.map((step) => alone(`SELECT ${schema}.${step}`)).join('; ')
}

/** One step of making segments ready. */
export function keepNumbers(schema: string, age: Age): string {
  const old = age === 'as registered' ? 'NULL' : interval(age.olderThanMs)
  return alone(`SELECT k.readied::text AS readied, k.more::text AS more FROM ${schema}.outbox_keep(${old}) AS k`)
}

const literal = (value: string | undefined): string => (value === undefined ? 'NULL' : quoteLiteral(value))

/** Who does what follows in this transaction, for the audit. */
function saysWho(by: string | undefined): string {
  return by === undefined ? '' : `SET LOCAL lockstep.by = ${quoteLiteral(by)}; `
}

export function operate(
  schema: string,
  verb: string,
  dispatcher: string,
  { topic, key, seq, headId }: { topic: string; key: string; seq?: number | undefined; headId?: string | undefined },
  { reason, by }: Audited,
): string {
  const given = [verb, dispatcher, topic, key].map(quoteLiteral).join(', ')
  const seen = `${seq ?? 'NULL'}, ${literal(reason)}, ${literal(headId)}`
  return alone(`${saysWho(by)}SELECT ${schema}.outbox_operate(${given}, ${seen}) AS answer`)
}

export function eraseStream(
  schema: string,
  { topic, key }: { topic: string; key: string },
  { reason, by }: Audited,
): string {
  return alone(
    `${saysWho(by)}SELECT ${schema}.outbox_erase(${quoteLiteral(topic)}, ${quoteLiteral(key)}, ${literal(reason)}) AS erased`,
  )
}

export function removeDispatcher(schema: string, name: string, { reason, by }: Audited): string {
  return alone(`${saysWho(by)}SELECT ${schema}.outbox_remove(${quoteLiteral(name)}, ${literal(reason)}) AS answer`)
}

/** What a split would find; with `forMs`, owners also release their shards for this time. */
export function beginSplit(schema: string, name: string, shards: number, forMs: number | undefined): string {
  return alone(`SELECT s.answer, s.shards::text AS shards, s.owned::text AS owned, s.parked::text AS parked
    FROM ${schema}.outbox_split_begin(${quoteLiteral(name)}, ${shards}, ${forMs ?? 'NULL'}) AS s`)
}

export function splitShards(schema: string, name: string, from: number, to: number, { reason, by }: Audited): string {
  return alone(
    `${saysWho(by)}SELECT ${schema}.outbox_split(${quoteLiteral(name)}, ${from}, ${to}, ${literal(reason)}) AS answer`,
  )
}

/** For every dispatcher, all or nothing. */
export function rebase(
  schema: string,
  choice: string,
  here: { system: string; database: string; timeline: string },
  { reason, by }: Audited,
  preview: boolean,
): string {
  const place = `${quoteLiteral(here.system)}, ${quoteLiteral(here.database)}`
  const given = `${quoteLiteral(choice)}, ${place}, ${parseInt(here.timeline, 16)}, ${literal(reason)}`
  return `BEGIN ISOLATION LEVEL READ COMMITTED; ${saysWho(by)}
    SELECT COALESCE(sum(${schema}.outbox_rebase(d.name, ${given})), 0)::text AS put_aside FROM ${schema}.outbox_dispatcher_names() AS d(name);
    SELECT array_to_json(${schema}.outbox_forget_xids(${quoteLiteral(here.system)}))::text AS torn;
    ${preview ? 'ROLLBACK' : 'COMMIT'}`
}

/** A replay reads about this many bytes at a time. The size of compressed values is an estimate. */
const REPLAY_BYTES = 4_000_000

/**
 * Reads events, as many as fit into a piece: at least one. What is larger than the schema's limit comes without its payload.
 * OFFSET 0: each payload is unpacked once, and only of events that are in the piece.
 */
function readPiece(schema: string, events: string, order: 'id' | 'id DESC' | 'seq'): string {
  return `SELECT r.event_id, r.topic, r.key, r.seq, r.uuid, r.enqueued_ms, r.tombstone,
                 CASE WHEN r.size <= r.most THEN r.payload END AS payload, CASE WHEN r.size <= r.most THEN encode(r.bytes, 'hex') END AS hex,
                 CASE WHEN r.size <= r.most THEN r.headers END AS headers, CASE WHEN r.size > r.most THEN r.size::text END AS unreadable,
                 CASE WHEN r.not_before > clock_timestamp() THEN 'held' END AS held
            FROM (SELECT u.*, CASE WHEN u.stored > u.most THEN u.stored
                              ELSE COALESCE(octet_length(u.bytes), octet_length(u.payload), 0)::bigint + COALESCE(octet_length(u.headers), 0)
                              END AS size
                    FROM (SELECT e.id::text AS event_id, e.topic, e.key, e.seq::text AS seq, e.uuid::text AS uuid,
                                 floor(extract(epoch FROM e.enqueued_at) * 1000)::text AS enqueued_ms,
                                 CASE WHEN e.erased THEN 'erased' END AS tombstone, e.bytes, e.stored, e.most, e.not_before,
                                 CASE WHEN e.stored <= e.most THEN e.payload::text END AS payload,
                                 CASE WHEN e.stored <= e.most THEN e.headers::text END AS headers
                            FROM (SELECT l.*, sum(l.stored * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END)
                                                OVER (ORDER BY l.${order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                    FROM (SELECT v.*, ${schema}.outbox_stored_bytes(v.payload, v.bytes, v.headers) AS stored,
                                                 ${schema}.outbox_max_event_bytes() AS most FROM ${events} AS v) AS l) AS e
                           WHERE COALESCE(e.before, 0) < ${REPLAY_BYTES} ORDER BY e.${order} OFFSET 0) AS u) AS r`
}

/** The server must not compile it, which would take longer than reading. */
const UNCOMPILED = 'SET LOCAL jit = off;'

/** Retained events of one stream from a number on. */
export function eventsOfStream(
  schema: string,
  { topic, key }: { topic: string; key: string },
  fromSeq: number,
  toSeq: number | undefined,
  upTo: number,
  limit: number,
): string {
  const stream = `${quoteLiteral(topic)}, ${quoteLiteral(key)}`
  const events = `${schema}.outbox_replay_stream(${stream}, ${fromSeq}, ${toSeq ?? 'NULL'}, ${upTo}, ${limit})`
  return sentAfterwards(readPiece(schema, events, 'seq'), emptied(schema, stream, String(fromSeq)), UNCOMPILED)
}

/** What retention has removed by then. */
function emptied(schema: string, stream: string, nextSeq: string): string {
  return `SELECT m.emptied_id::text AS emptied, m.gone::text AS gone FROM ${schema}.outbox_emptied(${stream}, ${nextSeq}) AS m;`
}

/** Retained events after a position, in the order of positions: within each stream its own. */
export function eventsAfter(
  schema: string,
  position: number,
  upTo: number,
  topic: string | undefined,
  limit: number,
): string {
  const events = `${schema}.outbox_replay_after(${position}, ${upTo}, ${literal(topic)}, ${limit})`
  return sentAfterwards(readPiece(schema, events, 'id'), emptied(schema, 'NULL, NULL', 'NULL'), UNCOMPILED)
}

/** How far ids have been given out, and a transaction that comes after all to whom they were. */
export function positionNow(schema: string): string {
  return `SELECT ${schema}.outbox_position()::text AS position, pg_current_xact_id()::text AS after,
                 ${serverEpochExpression(schema)} AS history`
}

/** Whether every transaction before that one has ended. */
export function hasEnded(xid: string): string {
  return `SELECT (pg_snapshot_xmin(pg_current_snapshot()) >= '${xid}'::xid8)::text AS ended`
}

/** Milliseconds since 1970, as text. */
function atMs(moment: string): string {
  return `(extract(epoch FROM ${moment}) * 1000)::text`
}

/** What is known of dispatchers and shards. */
export function restingShards(schema: string): string {
  return `SELECT name, holder FROM ${schema}.outbox_resting()`
}

export function outboxStatus(schema: string): string {
  return `SELECT * FROM ${schema}.outbox_status()`
}

/** The streams that are held until a time, by shard. */
export function heldStreams(schema: string): string {
  return `SELECT * FROM ${schema}.outbox_held()`
}

export function outboxLag(schema: string, dispatcher: string): string {
  return `SELECT count(*)::text AS shards, COALESCE(sum(s.lag_events::bigint), 0)::text AS events, bool_and(s.lag_exact::boolean)::text AS exact,
                 min(s.oldest_ms::numeric)::text AS oldest_ms, COALESCE(sum(s.parked::bigint), 0)::text AS parked
            FROM ${schema}.outbox_status() AS s WHERE s.dispatcher = ${quoteLiteral(dispatcher)}`
}

export function dispatcherList(schema: string): string {
  return `SELECT name, array_to_json(topics)::text AS topics, topics_after::text AS topics_after FROM ${schema}.outbox_dispatcher_list()`
}

export function outboxSegments(schema: string): string {
  return `SELECT number::text AS number, ${atMs('opened_at')} AS opened_ms, ${atMs('left_at')} AS left_ms, bytes::text AS bytes,
                 is_current::text AS current
            FROM ${schema}.outbox_segment_list()`
}

export function parkedList(schema: string, dispatcher: string | undefined, limit: number): string {
  return `SELECT dispatcher, topic, key, state, attempts::text AS attempts, reason, ${atMs('since')} AS since_ms,
                 ${atMs('next_attempt_at')} AS next_attempt_ms, events::text AS events, head::text AS head,
                 head_id::text AS head_id
            FROM ${schema}.outbox_parked_list(${literal(dispatcher)}, ${limit})`
}

/** Which of those that wait or were given up. */
export interface WaitingFilter {
  readonly dispatcher: string | undefined
  readonly topic: string | undefined
  readonly key: string | undefined
  readonly ids: readonly string[] | undefined
  readonly error: string | undefined
}

function filtered({ dispatcher, topic, key, ids, error }: WaitingFilter): string {
  const list = ids === undefined ? 'NULL' : `${textArray(ids)}::uuid[]`
  return `${literal(dispatcher)}, ${literal(topic)}, ${literal(key)}, ${list}, ${literal(error)}`
}

/** The next dead letters behind one, without payloads. */
export function deadLetterPage(
  schema: string,
  filter: WaitingFilter,
  after: readonly [dispatcher: string, stream: string, seq: string] | undefined,
  limit: number,
): string {
  const behind = after === undefined ? 'NULL, NULL, NULL' : after.map(quoteLiteral).join(', ')
  return `SELECT dispatcher, stream::text AS stream, topic, key, seq::text AS seq, uuid::text AS uuid, ${atMs('enqueued_at')} AS enqueued_ms,
                 ${atMs('died_at')} AS died_ms, reason, stored::text AS stored, usable::text AS usable
            FROM ${schema}.outbox_dead_find(${filtered(filter)}, ${behind}, ${limit})`
}

/** The next streams behind one that are parked or blocked. */
export function parkedPage(schema: string, filter: WaitingFilter, after: string | undefined, limit: number): string {
  return `SELECT stream::text AS stream, topic, key, state, attempts::text AS attempts, reason, ${atMs('since')} AS since_ms,
                 ${atMs('next_attempt_at')} AS next_attempt_ms, events::text AS events, head::text AS head, head_id::text AS head_id
            FROM ${schema}.outbox_parked_find(${filtered(filter)}, ${literal(after)}, ${limit})`
}

export function redriveParked(
  schema: string,
  dispatcher: string,
  streams: readonly string[],
  { reason, by }: Audited,
): string {
  const given = `${quoteLiteral(dispatcher)}, ${textArray(streams)}::uuid[], ${literal(reason)}`
  return alone(`${saysWho(by)}SELECT array_to_json(${schema}.outbox_redrive_parked(${given}))::text AS streams`)
}

export function redriveDead(
  schema: string,
  dispatcher: string,
  letters: readonly { readonly stream: string; readonly seq: string; readonly uuid: string }[],
  { reason, by }: Audited,
): string {
  const list = (of: 'stream' | 'seq' | 'uuid', type: string): string =>
    `${textArray(letters.map((letter) => letter[of]))}::${type}[]`
  const given = `${quoteLiteral(dispatcher)}, ${list('stream', 'uuid')}, ${list('seq', 'bigint')}, ${list('uuid', 'uuid')}`
  return alone(`${saysWho(by)}SELECT ${schema}.outbox_redrive_dead(${given}, ${literal(reason)})::text AS redriven`)
}

/** Writes down who replays and why. */
export function auditReplay(
  schema: string,
  { topic, key, seq }: { topic: string | undefined; key: string | undefined; seq: number | undefined },
  { reason, by }: Audited,
): string {
  const given = `${literal(topic)}, ${literal(key)}, ${seq ?? 'NULL'}, ${literal(reason)}`
  return alone(`${saysWho(by)}SELECT ${schema}.outbox_audit_replay(${given})`)
}

/** Which events people look at. */
export interface EventWindow {
  readonly topic: string | undefined
  readonly from: Date | undefined
  readonly to: Date | undefined
  readonly newestFirst: boolean
}

function between({ from, to }: EventWindow): string {
  return `${literal(from?.toISOString())}::timestamptz, ${literal(to?.toISOString())}::timestamptz`
}

const STORED = `id::text AS id, seq::text AS seq, topic, key, uuid::text AS uuid, ${atMs('enqueued_at')} AS enqueued_ms, erased::text AS erased,
                stored::text AS stored`

export function eventsOf(
  schema: string,
  { topic, key }: { topic: string; key: string },
  fromSeq: number | undefined,
  toSeq: number | undefined,
  window: EventWindow,
  limit: number,
  maxScanned: number,
): string {
  const stream = `${quoteLiteral(topic)}, ${quoteLiteral(key)}, ${fromSeq ?? 'NULL'}, ${toSeq ?? 'NULL'}`
  return `SELECT ${STORED}, scanned::text AS scanned, last_seq::text AS last_seq
            FROM ${schema}.outbox_events_of(${stream}, ${between(window)}, ${window.newestFirst}, ${limit}, ${maxScanned})`
}

export function eventsBetween(
  schema: string,
  afterId: number,
  upTo: number,
  window: EventWindow,
  limit: number,
): string {
  const given = `${afterId}, ${upTo}, ${literal(window.topic)}, ${between(window)}, ${window.newestFirst}, ${limit}`
  return `SELECT ${STORED} FROM ${schema}.outbox_events_between(${given})`
}

/** By a header as well, and by anything else that an event has. */
export function eventsWithHeader(
  schema: string,
  afterId: number,
  upTo: number,
  window: EventWindow,
  { key, fromSeq, toSeq, header }: HeaderSearch,
  limit: number,
): string {
  const stream = `${literal(window.topic)}, ${literal(key)}, ${fromSeq ?? 'NULL'}, ${toSeq ?? 'NULL'}`
  const wanted = `${quoteLiteral(header.name)}, ${quoteLiteral(header.value)}, ${window.newestFirst}, ${limit}`
  return `SELECT ${STORED} FROM ${schema}.outbox_events_find(${afterId}, ${upTo}, ${stream}, ${between(window)}, ${wanted})`
}

/** What a search by a header looks for, beside topic and time. */
export interface HeaderSearch {
  readonly key: string | undefined
  readonly fromSeq: number | undefined
  readonly toSeq: number | undefined
  readonly header: { readonly name: string; readonly value: string }
}

/** To be sent before a statement in one message, which is one transaction: the server ends the statement after that time. */
export function endAfter(timeoutMs: number): string {
  return `SET LOCAL statement_timeout = ${timeoutMs}; `
}

/** The range of positions in which events of that time are. */
export function positionsOf(schema: string, window: EventWindow): string {
  return `SELECT p.after_id::text AS after_id, p.up_to::text AS up_to FROM ${schema}.outbox_positions(${between(window)}) AS p`
}

/** The payloads of these events, as many as fit into a piece. */
export function payloadsOf(
  schema: string,
  events: readonly { topic: string; key: string; seq: number; position: number }[],
  newestFirst: boolean,
): string {
  const wanted = events.map(
    ({ topic, key, seq, position }) =>
      `(${quoteLiteral(topic)}, ${quoteLiteral(key)}, ${seq}::bigint, ${position}::bigint)`,
  )
  const found = `(SELECT r.* FROM (VALUES ${wanted.join(', ')}) AS w(topic, key, seq, id)
     CROSS JOIN LATERAL ${schema}.outbox_replay_stream(w.topic, w.key, w.seq, w.seq, w.id, 1) AS r)`
  return sentAfterwards(readPiece(schema, found, newestFirst ? 'id DESC' : 'id'), '', UNCOMPILED)
}
