import { quoteLiteral } from '../postgres/index.ts'

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

export function appendEvents(schema: string): string {
  return `SELECT ${schema}.outbox_append_many($1::text[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::boolean, $7::bigint[])`
}

export function lockStreams(schema: string): string {
  return `SELECT ${schema}.outbox_lock($1::text[], $2::text[])`
}

/** Where a shard's cursor is to be, and what is put aside with it. */
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
export interface ShardQuestion {
  readonly shard: number
  readonly fence: bigint
  readonly advance: Advance | undefined
  readonly unpark: readonly { readonly topic: string; readonly key: string }[]
  /** So many events at the most. */
  readonly most: number
}

/** The functions look again after they have waited: that needs a level at which each statement sees what is committed by then. */
function alone(statement: string): string {
  return `BEGIN ISOLATION LEVEL READ COMMITTED; ${statement}; COMMIT`
}

/** A list that may be long. The server must not compile it, which takes longer than reading it. One message is one transaction. */
function uncompiled(statement: string): string {
  return `SET LOCAL jit = off; ${statement}`
}

/** After a failure: whether it was because the server is a standby. */
export const ROLL_BACK_AND_ASK = 'ROLLBACK; SELECT pg_is_in_recovery()::text AS standby'

const textArray = (values: readonly string[]): string => `ARRAY[${values.map(quoteLiteral).join(', ')}]::text[]`

/** Where nothing is put aside, all cursors are moved at once. */
function moved(schema: string, name: string, questions: readonly ShardQuestion[]): string[] {
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
 * Moves cursors, then reads on, in one message: two transactions, because whoever reads must have no transaction id. Of what could
 * not be moved the row still says where it is, and the reading goes by that. All cursors are moved before any stream is taken out of
 * those that wait: whoever locks both tables has that order.
 */
export function moveAndFetch(
  schema: string,
  dispatcher: string,
  questions: readonly ShardQuestion[],
  shards: number,
): string {
  const name = quoteLiteral(dispatcher)
  const advances = moved(schema, name, questions)
  const unparks = questions.flatMap(({ shard, fence, unpark }) =>
    unpark.length === 0
      ? []
      : [
          `${schema}.outbox_unpark(${name}, ${shard}::smallint, ${fence},
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
  return `${move} BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY;
    SELECT * FROM ${schema}.outbox_read(${name}, ARRAY[${shardList}]::smallint[], ARRAY[${fenceList}]::bigint[], ARRAY[${mostList}], ${shards});
    COMMIT`
}

export function flushToDisk(schema: string): string {
  return alone(`SELECT ${schema}.outbox_flush() AS life`)
}

export function takeShard(schema: string, dispatcher: string, shard: number, fence: bigint): string {
  return alone(`SELECT ${schema}.outbox_take(${quoteLiteral(dispatcher)}, ${shard}::smallint, ${fence})::text AS taken`)
}

export function parkedDue(
  schema: string,
  dispatcher: string,
  shard: number,
  fence: bigint,
  maxStreams: number,
  maxEvents: number,
): string {
  return alone(
    `SELECT * FROM ${schema}.outbox_parked_due(${quoteLiteral(dispatcher)}, ${shard}::smallint, ${fence}, ${maxStreams}, ${maxEvents})`,
  )
}

export function parkedTried(
  schema: string,
  dispatcher: string,
  shard: number,
  fence: bigint,
  outcomes: string,
): string {
  return alone(
    `SELECT ${schema}.outbox_parked_tried(${quoteLiteral(dispatcher)}, ${shard}::smallint, ${fence}, ${quoteLiteral(outcomes)})`,
  )
}

export function registerDispatcher(
  schema: string,
  { name, shards }: { name: string; shards: number },
  here: { system: string; database: string; timeline: string },
): string {
  const values = [name, here.system, here.database].map(quoteLiteral)
  return alone(`SELECT shards::text AS shards, system, database, timeline::text AS timeline FROM ${schema}.outbox_register(
    ${values[0]}, ${shards}::smallint, ${values[1]}, ${values[2]}, ${parseInt(here.timeline, 16)})`)
}

/**
 * Each step a transaction of its own: a slot is made known before it is used, and sealed after it was left. What is emptied was made
 * ready by an earlier round, hence in this order.
 */
export function retainSegments(schema: string, olderThanMs: number, rotateMs: number): string {
  const age = `make_interval(secs => ${olderThanMs / 1000})`
  const steps = [
    `outbox_prepare_segment(make_interval(secs => ${rotateMs / 1000})) AS prepared`,
    'outbox_rotate()::text AS rotated',
    'outbox_seal() AS sealed',
    `outbox_drop(${age}) AS dropped`,
    `outbox_keep(${age}) AS readied`,
  ]
  return steps.map((step) => `BEGIN ISOLATION LEVEL READ COMMITTED; SELECT ${schema}.${step}; COMMIT`).join('; ')
}

const literal = (value: string | undefined): string => (value === undefined ? 'NULL' : quoteLiteral(value))

export function operate(
  schema: string,
  verb: string,
  dispatcher: string,
  { topic, key, seq }: { topic: string; key: string; seq?: number | undefined },
  reason: string | undefined,
): string {
  const given = [verb, dispatcher, topic, key].map(quoteLiteral).join(', ')
  return alone(`SELECT ${schema}.outbox_operate(${given}, ${seq ?? 'NULL'}, ${literal(reason)}) AS answer`)
}

export function eraseStream(
  schema: string,
  { topic, key }: { topic: string; key: string },
  reason: string | undefined,
): string {
  return alone(
    `SELECT ${schema}.outbox_erase(${quoteLiteral(topic)}, ${quoteLiteral(key)}, ${literal(reason)}) AS erased`,
  )
}

export function removeDispatcher(schema: string, name: string, reason: string): string {
  return alone(`SELECT ${schema}.outbox_remove(${quoteLiteral(name)}, ${quoteLiteral(reason)}) AS answer`)
}

/** For every dispatcher, all or nothing. */
export function rebase(
  schema: string,
  choice: string,
  here: { system: string; database: string; timeline: string },
  reason: string | undefined,
): string {
  const place = `${quoteLiteral(here.system)}, ${quoteLiteral(here.database)}`
  const given = `${quoteLiteral(choice)}, ${place}, ${parseInt(here.timeline, 16)}, ${literal(reason)}`
  return `BEGIN ISOLATION LEVEL READ COMMITTED;
    SELECT COALESCE(sum(${schema}.outbox_rebase(d.name, ${given})), 0)::text AS put_aside FROM ${schema}.outbox_dispatchers d;
    SELECT array_to_json(${schema}.outbox_forget_xids(${quoteLiteral(here.system)}))::text AS torn;
    COMMIT`
}

/** A replay reads so many bytes at a time, as far as that can be said of what is stored compressed. */
const REPLAY_BYTES = 4_000_000

/**
 * Reads events, as many as fit into a piece: at least one. What is larger than the schema's limit comes without its payload.
 * OFFSET 0: each payload is unpacked once, and only of events that are in the piece.
 */
function readPiece(schema: string, events: string, order: 'id' | 'seq'): string {
  return uncompiled(`SELECT r.event_id, r.topic, r.key, r.seq, r.uuid, r.enqueued_ms, r.tombstone,
                 CASE WHEN r.size <= r.most THEN r.payload END AS payload, CASE WHEN r.size <= r.most THEN encode(r.bytes, 'hex') END AS hex,
                 CASE WHEN r.size <= r.most THEN r.headers END AS headers, CASE WHEN r.size > r.most THEN r.size::text END AS unreadable
            FROM (SELECT u.*, CASE WHEN u.stored > u.most THEN u.stored
                              ELSE COALESCE(octet_length(u.bytes), octet_length(u.payload), 0)::bigint + COALESCE(octet_length(u.headers), 0)
                              END AS size
                    FROM (SELECT e.id::text AS event_id, e.topic, e.key, e.seq::text AS seq, e.uuid::text AS uuid,
                                 (date_part('epoch', e.enqueued_at) * 1000)::bigint::text AS enqueued_ms,
                                 CASE WHEN e.erased THEN 'erased' END AS tombstone, e.bytes, e.stored, e.most,
                                 CASE WHEN e.stored <= e.most THEN e.payload::text END AS payload,
                                 CASE WHEN e.stored <= e.most THEN e.headers::text END AS headers
                            FROM (SELECT l.*, sum(l.stored * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END)
                                                OVER (ORDER BY l.${order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                    FROM (SELECT v.*, ${schema}.outbox_stored_bytes(v.payload, v.bytes, v.headers) AS stored,
                                                 ${schema}.outbox_max_event_bytes() AS most FROM (${events}) AS v) AS l) AS e
                           WHERE COALESCE(e.before, 0) < ${REPLAY_BYTES} ORDER BY e.${order} OFFSET 0) AS u) AS r`)
}

/** Retained events of one stream from a number on. */
export function eventsOfStream(
  schema: string,
  { topic, key }: { topic: string; key: string },
  fromSeq: number,
  toSeq: number | undefined,
  upTo: number,
  limit: number,
): string {
  const events = `SELECT * FROM ${schema}.outbox_events e
           WHERE e.stream = ${schema}.outbox_stream(${quoteLiteral(topic)}, ${quoteLiteral(key)})
             AND e.seq >= ${fromSeq} AND e.id <= ${upTo} ${toSeq === undefined ? '' : `AND e.seq <= ${toSeq}`}
           ORDER BY e.seq LIMIT ${limit}`
  return readPiece(schema, events, 'seq')
}

/** Retained events after a position, in the order of positions: within each stream its own. */
export function eventsAfter(
  schema: string,
  position: number,
  upTo: number,
  topic: string | undefined,
  limit: number,
): string {
  const events = `SELECT * FROM ${schema}.outbox_events e
           WHERE e.id > ${position} AND e.id <= ${upTo} ${topic === undefined ? '' : `AND e.topic = ${quoteLiteral(topic)}`}
           ORDER BY e.id LIMIT ${limit}`
  return readPiece(schema, events, 'id')
}

/** How far ids have been given out, and a transaction that comes after all to whom they were. */
export function positionNow(schema: string): string {
  return `SELECT s.last_value::text AS position, pg_current_xact_id()::text AS after FROM ${schema}.outbox_ids s`
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
export function outboxStatus(schema: string): string {
  return `SELECT * FROM ${schema}.outbox_status()`
}

export function outboxSegments(schema: string): string {
  return `SELECT s.number::text AS number, ${atMs('s.opened_at')} AS opened_ms, ${atMs('s.left_at')} AS left_ms,
                 pg_total_relation_size(format('%s.%I', ${quoteLiteral(schema)}, 'outbox_events_' || s.slot)::regclass)::text AS bytes,
                 (s.slot = (SELECT last_value FROM ${schema}.outbox_slot))::text AS current
            FROM ${schema}.outbox_segments s ORDER BY s.number`
}

/** The events of a stream that waits have numbers without a gap: first and last say how many there are, at the cost of two. */
export function parkedList(schema: string, dispatcher: string | undefined, limit: number): string {
  return uncompiled(`SELECT p.dispatcher, p.topic, p.key, p.state, p.attempts::text AS attempts, p.reason, ${atMs('p.since')} AS since_ms,
                 CASE WHEN p.state = 'parked' THEN ${atMs('p.next_attempt_at')} END AS next_attempt_ms, COALESCE(e.last - e.head + 1, 0)::text AS events,
                 e.head::text AS head
            FROM ${schema}.outbox_parked p
            CROSS JOIN LATERAL (SELECT min(q.seq) AS head, max(q.seq) AS last FROM ${schema}.outbox_parked_events q
                                 WHERE q.dispatcher = p.dispatcher AND q.stream = p.stream) AS e
           ${dispatcher === undefined ? '' : `WHERE p.dispatcher = ${quoteLiteral(dispatcher)}`}
           ORDER BY p.since LIMIT ${limit}`)
}
