import { SLOTS } from './slots.sql.ts'

/**
 * The text of `outbox_read()`. Each slot has two statements of its own, because a plan that is kept locks every table that it names; a
 * third one is planned with every call, for windows over several slots. They differ in what they read from, and share the rest.
 *
 * Sequential scans are forbidden, so that a table that was just filled is read by its index. Before PostgreSQL 18 the planner does that by adding
 * 1e10 to the cost of a plan that cannot do without one, be it over three rows; and a server with LLVM, as Debian's is, first compiles what
 * costs that much. A batch is read in less time than that takes. Hence `jit = off`, here and in every function that reads tables (of a table
 * that was never analyzed the planner expects pages full of rows). Measured on PostgreSQL 15 of Debian, one dispatcher: COMMIT to sink
 * 1,906 ms before, 5.6 ms after; a backlog 452 to 874 events a second before, 26,000 to 34,000 after; processor time of the database
 * 650 us for each event before, 10 after.
 */

/** Where a statement leaves what it found. */
const FOUND = 'found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored'

/** Values of a fixed length, concatenated in hex: an array as text takes four times as long, of a whole read an eighth. */
function hex(bytes: string): string {
  return `encode(string_agg(${bytes}, ''), 'hex')`
}

/**
 * Whether the stream of an event waits. Of few streams that wait a hash table is made, which costs what there are of them; of many each event's is
 * looked for, which costs what there are of events. (A scalar subquery, which the planner does not turn into a hash table.)
 */
function waits({ table, dispatcher, shard, many }: Waiting): string {
  return `CASE WHEN ${many} THEN (SELECT true FROM ${table} p WHERE p.dispatcher = ${dispatcher} AND p.stream = w.stream)
                                    ELSE w.stream IN (SELECT p.stream FROM ${table} p WHERE p.dispatcher = ${dispatcher} AND p.shard = ${shard}) END`
}

interface Waiting {
  readonly table: string
  readonly dispatcher: string
  readonly shard: string
  /** Whether there are many. */
  readonly many: string
  /** The time by which events are held. */
  readonly at: string
}

function columns(body: string, head: string, waiting: Waiting, stored: string): string {
  return String.raw`SELECT count(*), ${hex('int8send(w.id)')}, json_agg(w.topic), json_agg(w.key), ${hex('int8send(w.seq)')},
               ${hex('uuid_send(w.uuid)')}, ${hex('timestamptz_send(w.enqueued_at)')},
               string_agg(${body}, E'\x1e'), string_agg(${head}, E'\x1e'),
               string_agg(CASE WHEN ${waits(waiting)} THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.not_before > ${waiting.at} THEN CASE WHEN w.erased THEN 'g' ELSE 'h' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), ${stored}`
}

/** Of events that all fit on a page. */
function plainColumns(waiting: Waiting): string {
  return columns(
    String.raw`COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), '')`,
    "COALESCE(w.headers::text, '')",
    waiting,
    '0',
  )
}

/** Of events that `cut()` has measured. */
function measuredColumns(limit: string, waiting: Waiting): string {
  return columns(
    String.raw`CASE WHEN w.unpacked > ${limit} THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END`,
    `CASE WHEN w.unpacked > ${limit} THEN '' ELSE w.head END`,
    waiting,
    'sum(w.size)',
  )
}

/**
 * Cut where there is enough, by what is known before anything is unpacked: bytes become hex, what was packed may become ninety times as
 * much and mostly becomes less than ten times. One event there always is. What is stored with more than the limit is not unpacked;
 * the rest is unpacked once (OFFSET 0 keeps the planner from doing it in two places) and measured.
 */
function cut(events: string, mostStored: string, limit: string): string {
  return `(SELECT m.*, CASE WHEN m.stored > ${limit} THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > ${limit} THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > ${limit} THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, :"schema".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM ${events} AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < ${mostStored} OFFSET 0) AS m) AS w`
}

/** What is read of an event: a sort takes every column along. */
const READ =
  'e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased, e.not_before'

/**
 * Whether the shard has the event and the dispatcher wants it. Before the limit: what it does not want is neither sorted nor counted. Only shards
 * that are smaller than a group look at buckets.
 */
const WANTED =
  '(first_bucket IS NULL OR e.bucket BETWEEN first_bucket AND last_bucket) AND (patterns IS NULL OR e.topic LIKE ANY(patterns))'

/**
 * The events of a window in one slot. Of transactions that ran when the window began, only those that have ended by now are looked for,
 * each by itself. (With xid = ANY(...), a plan made while the slot was empty has the transactions outside of the index condition, and
 * reads the whole group until the session ends. OFFSET 0 keeps the planner from joining in another way.)
 */
function limited(slot: number): string {
  return `(SELECT * FROM (
                      SELECT ${READ} FROM :"schema".outbox_events_${slot} e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                         AND ${WANTED}
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT ${READ} FROM :"schema".outbox_events_${slot} e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor
                           AND ${WANTED} OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most)`
}

const WAITING: Waiting = {
  table: ':"schema".outbox_parked',
  dispatcher: 'my_dispatcher',
  shard: 'my_shards[i]',
  many: 'many_waiting',
  at: 'read_at',
}

/** Of the statement that is planned with every call, which `format()` makes. */
const WAITING_GIVEN: Waiting = {
  table: '%1$I.outbox_parked',
  dispatcher: '$10',
  shard: '$1',
  many: '$17',
  at: '$18',
}

function readSlot(slot: number): string {
  return `
          WHEN slots[1] = ${slot} AND NOT large THEN
            ${plainColumns(WAITING)} INTO ${FOUND}
              FROM ${limited(slot)} AS w;
          WHEN slots[1] = ${slot} THEN
            ${measuredColumns('limit_bytes', WAITING)} INTO ${FOUND}
              FROM ${cut(limited(slot), 'most_stored', 'limit_bytes')};`
}

export const OUTBOX_READ = String.raw`-- The next events of shards, as far as their cursors say, at most max_events of each: one row for each shard, in which each column has
-- the values of all events, in their order. As a row for each event they cost the server 10 us each and the driver as much again,
-- most of it for taking rows apart into values and values into rows; as columns 4 us, and the driver next to nothing.
-- Bodies and headers are parted by a character that JSON cannot have in it; a body of bytes begins with another one, in hex; a third one
-- and a number is in place of a body that is larger than the schema's limit. Flags have one character for each event: e is erased, w
-- belongs to a stream that waits, or that an event holds which is not due yet; b is both. Everything is text, in a form that no setting of the session changes.
-- All shards together get about 8 MB: where the first ones have used that up, the others have no row in the answer, and are asked for
-- again. One event there always is.
-- prev to next is the window: either what is being read already or, when that is done, what has been committed since; a long way is
-- gone in steps from tick to tick. whole: there is nothing more in it. The caller must not have a transaction id.
CREATE FUNCTION :"schema".outbox_read(
  my_dispatcher text, my_shards smallint[], my_fences bigint[], max_events integer[], shard_count integer
) RETURNS TABLE (
  shard text, verdict text, life text, prev text, next text, version text, last_id text, parked_due_ms text, stale text, whole text,
  ids text, topics text, keys text, seqs text, uuids text, enqueued text, bodies text, headers text, flags text
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
  c :"schema".outbox_cursors;
  a pg_snapshot;
  z pg_snapshot;
  tick pg_snapshot;
  ended xid8[];
  source text;
  events text;
  few_groups smallint[];
  few_xids xid8[];
  groups smallint[];
  -- Where a shard is smaller than a group.
  first_bucket smallint;
  last_bucket smallint;
  slots smallint[];
  floor bigint;
  resumed boolean;
  found_events integer;
  most integer;
  -- What is large is read in smaller pieces; what was packed tightly, in still smaller ones: all of it must fit into one value.
  most_stored CONSTANT bigint := 4000000;
  most_bytes CONSTANT bigint := 8000000;
  limit_bytes bigint := :"schema".outbox_max_event_bytes();
  stored bigint;
  large boolean;
  bytes bigint;
  -- What the shards so far have got.
  spent bigint := 0;
  written pg_lsn;
  here record;
  -- What is on disk here and visible might not be on the standby yet: a COMMIT that is cancelled, or terminated, while it
  -- waits for the standby is a commit.
  alone boolean := current_setting('synchronous_standby_names') = '';
  stride integer;
  -- The topics of the dispatcher. Read before the cursors: a change of the topics writes other fences into these.
  patterns text[];
  -- Its shards are about to be split: owners move their cursors, and release what they have.
  paused boolean;
  -- The number of windows without an event that one call passes. Then the cursor is written, so that a crash does not begin with the first again.
  passed integer;
  most_passed CONSTANT integer := 32;
  -- The end of the log at the ring that woke the caller, just before that ring was committed.
  rung pg_lsn := NULLIF(current_setting('lockstep.outbox_rung_at', true), '')::pg_lsn;
  unflushed boolean := false;
  -- By which events are due: one time for all that is read.
  read_at timestamptz := clock_timestamp();
  many_waiting boolean;
BEGIN
  SELECT :"schema".outbox_topic_patterns(d.topics), d.paused_until > clock_timestamp() INTO patterns, paused
    FROM :"schema".outbox_dispatchers d WHERE d.name = my_dispatcher;
  SELECT * INTO here FROM :"schema".outbox_here(my_dispatcher);
  FOR i IN 1 .. cardinality(my_shards) LOOP
    EXIT WHEN spent >= most_bytes;
    shard := my_shards[i];
    IF here.elsewhere THEN
      verdict := 'elsewhere';
      RETURN NEXT;
      CONTINUE;
    END IF;
    SELECT * INTO c FROM :"schema".outbox_cursors o
     WHERE o.dispatcher = my_dispatcher AND o.shard = my_shards[i] ORDER BY o.version DESC LIMIT 1;
    IF paused OR c.fence IS DISTINCT FROM my_fences[i] THEN
      SELECT INTO verdict, life, prev, next, version, last_id, parked_due_ms, stale, whole, ${FOUND}
                  'lost', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
      RETURN NEXT;
      CONTINUE;
    END IF;
    groups := ARRAY(SELECT generate_series(my_shards[i] * 64 / shard_count,
                                           greatest(my_shards[i] * 64 / shard_count, (my_shards[i] + 1) * 64 / shard_count - 1))::smallint);
    IF shard_count > 64 THEN
      first_bucket := my_shards[i] * 1024 / shard_count;
      last_bucket := (my_shards[i] + 1) * 1024 / shard_count - 1;
    END IF;
    parked_due_ms := (SELECT ceil(extract(epoch FROM min(p.next_attempt_at) - clock_timestamp()) * 1000)::bigint
                        FROM :"schema".outbox_parked p
                       WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i] AND p.state = 'parked');
    many_waiting := false;
    IF parked_due_ms IS NOT NULL THEN
      many_waiting := (SELECT count(*) > 100 FROM (SELECT FROM :"schema".outbox_parked p
                                                    WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i] LIMIT 101) AS n);
    END IF;
    -- This number of ticks has slightly fewer events than wanted, because the rest of a window costs as much as a window.
    stride := greatest(1, max_events[i] * shard_count / 1250);
    resumed := NOT c.done;
    passed := 0;
    IF c.done THEN
      a := c.next;
      z := NULL;
      floor := 0;
    ELSE
      a := c.prev;
      z := c.next;
      floor := c.after_id;
    END IF;
    LOOP
      tick := NULL;
      written := NULL;
      IF z IS NULL THEN
        SELECT t.snapshot, t.written INTO tick, written FROM :"schema".outbox_ticks t
         WHERE t.newest >= pg_snapshot_xmax(a)
           AND (t.newest > pg_snapshot_xmax(a) OR t.running < :"schema".outbox_running(a))
         ORDER BY t.newest, t.running DESC OFFSET stride - 1 LIMIT 1;
        z := COALESCE(tick, pg_current_snapshot());
      END IF;
      -- A transaction that was open when the window began and still is at its end has nothing in it.
      ended := ARRAY(SELECT x FROM pg_snapshot_xip(a) AS x WHERE pg_visible_in_snapshot(x, z) ORDER BY x);
      -- Not those that were sealed before the first transaction of the window: one that stays open for long does not count, so that
      -- the slots since it began are not read all the time. The current slot always: a restored dump might not know it.
      slots := ARRAY(SELECT s.slot FROM :"schema".outbox_segments s
                      WHERE s.sealed_xid IS NULL OR s.sealed_xid > least(pg_snapshot_xmax(a), ended[1])
                     UNION SELECT o.last_value FROM :"schema".outbox_slot o);
      -- The rest of a window of few transactions, such as one that wrote a million events: read again for every piece, 6,500/s;
      -- transaction by transaction, from where the last piece ended, 47,000/s.
      few_groups := NULL;
      IF resumed AND floor > 0 THEN
        SELECT * INTO few_groups, few_xids FROM :"schema".outbox_window_parts(slots, groups, a, z);
      END IF;
      -- Where nothing is stored apart, every event fits on a page, and none needs to be measured: that is an eighth of the time.
      large := (SELECT bool_or(pg_relation_size(r.reltoastrelid) > 0)
                  FROM unnest(slots) AS n JOIN pg_class r ON r.oid = format('%I.outbox_events_%s', :'schema', n)::regclass);
      most := max_events[i];
      LOOP
        BEGIN
          -- Mostly there is one slot, and the plan for it is kept. One plan for all slots would lock all of them, and wait for a session that
          -- empties one; without one kept, the planning takes four fifths of the time when there is little to read.
          CASE WHEN cardinality(slots) > 1 OR few_groups IS NOT NULL THEN
            source := CASE WHEN cardinality(slots) = 1 THEN format('%I.outbox_events_%s', :'schema', slots[1])
                           ELSE format('(SELECT * FROM %I.outbox_events WHERE slot = ANY(%L::smallint[]))', :'schema', slots) END;
            events := CASE WHEN few_groups IS NULL
              THEN format('SELECT * FROM %1$s AS e WHERE e.bucket_group = ANY($2) AND e.xid >= $3 AND e.xid < $4 AND e.id > $5
                             AND ($15 IS NULL OR e.bucket BETWEEN $15 AND $16) AND ($14 IS NULL OR e.topic LIKE ANY($14)) UNION ALL
                           SELECT t.* FROM unnest($6) AS x(xid) CROSS JOIN LATERAL (
                             SELECT * FROM %1$s AS e WHERE e.bucket_group = ANY($2) AND e.xid = x.xid AND e.id > $5
                               AND ($15 IS NULL OR e.bucket BETWEEN $15 AND $16) AND ($14 IS NULL OR e.topic LIKE ANY($14)) OFFSET 0
                           ) AS t', source)
              ELSE format('SELECT e.* FROM unnest($7, $8) AS p(bucket_group, xid) CROSS JOIN LATERAL (
                             SELECT * FROM %s AS v WHERE v.bucket_group = p.bucket_group AND v.xid = p.xid AND v.id > $5
                               AND ($15 IS NULL OR v.bucket BETWEEN $15 AND $16) AND ($14 IS NULL OR v.topic LIKE ANY($14)) ORDER BY v.id LIMIT $9
                           ) AS e', source) END;
            EXECUTE format($query$${measuredColumns('$13', WAITING_GIVEN)}
                FROM ${cut('(SELECT * FROM (%2$s) AS v WHERE pg_visible_in_snapshot(v.xid, $11) ORDER BY v.id LIMIT $9)', '$12', '$13')}$query$, :'schema', events)
              INTO ${FOUND}
              USING my_shards[i], groups, pg_snapshot_xmax(a), pg_snapshot_xmax(z), floor, ended, few_groups, few_xids, most,
                    my_dispatcher, z, most_stored, limit_bytes, patterns, first_bucket, last_bucket, many_waiting, read_at;${SLOTS.map(readSlot).join('')}
          END CASE;
          bytes := octet_length(bodies) + octet_length(headers);
          EXIT WHEN found_events <= 1 OR bytes <= most_bytes;
          most := greatest(1, found_events * (most_bytes / 2) / bytes);
        EXCEPTION WHEN program_limit_exceeded OR out_of_memory OR internal_error THEN
          -- One event that the server cannot unpack is reported as too large, by what is stored of it.
          IF most = 1 AND limit_bytes < 0 THEN RAISE; END IF;
          limit_bytes := CASE WHEN most = 1 THEN -1 ELSE limit_bytes END;
          most := greatest(1, most / 8);
        END;
      END LOOP;
      -- An event that is not due holds those behind it. Both are reported as events of streams that wait.
      IF strpos(flags, 'h') > 0 OR strpos(flags, 'g') > 0 THEN
        flags := (SELECT string_agg(CASE WHEN NOT f.held THEN f.flag WHEN f.flag IN ('e', 'b', 'g') THEN 'b' ELSE 'w' END, '' ORDER BY f.n)
                    FROM (SELECT r.n, r.flag, bool_or(r.flag IN ('h', 'g')) OVER (PARTITION BY r.topic, r.key ORDER BY r.n) AS held
                            FROM ROWS FROM (json_array_elements_text(topics::json), json_array_elements_text(keys::json), string_to_table(flags, NULL))
                                   WITH ORDINALITY AS r(topic, key, flag, n)) AS f);
      END IF;
      limit_bytes := :"schema".outbox_max_event_bytes();
      EXIT WHEN found_events > 0 OR (tick IS NULL AND NOT resumed) OR passed >= most_passed;
      passed := passed + 1;
      -- Nothing for this shard up to that tick, or no more in the window that was being read: on to the next.
      resumed := false;
      a := z;
      z := NULL;
      floor := 0;
    END LOOP;
    -- Whatever is visible in the window has its commit before this place in the log: that of the tick if there is one, otherwise the current one.
    IF written IS NULL THEN
      written := pg_current_wal_insert_lsn();
      -- A ring writes nothing but its own commit, which needs no flush. A commit takes 40 bytes at least, so that 64 bytes
      -- hold no second one: all others are before the ring. (decisions/0062)
      IF rung <= written AND written - rung <= 64 THEN
        written := rung;
      END IF;
    END IF;
    verdict := CASE WHEN alone AND pg_current_wal_flush_lsn() >= written THEN 'durable' ELSE 'visible' END;
    unflushed := unflushed OR (alone AND verdict = 'visible' AND found_events > 0);
    life := here.life;
    prev := a;
    next := z;
    version := c.version;
    last_id := (SELECT s.last_value FROM :"schema".outbox_ids s);
    -- A segment waits for this cursor to be written, and it could be by now. Or it has passed much that is not wanted, and would read it again:
    -- about 50 events of this shard, by the ids that all shards got.
    stale := CASE WHEN passed >= most_passed OR (patterns IS NOT NULL AND last_id::bigint - c.seen_id >= 50 * shard_count) THEN 'stale'
             ELSE (SELECT 'stale' FROM :"schema".outbox_segments s
                    WHERE s.sealed_xid > pg_snapshot_xmin(CASE WHEN c.done THEN c.next ELSE c.prev END)
                      AND s.sealed_xid <= pg_snapshot_xmin(z) LIMIT 1) END;
    whole := CASE WHEN found_events < most AND COALESCE(stored, 0) < most_stored THEN 'whole' END;
    spent := spent + COALESCE(bytes, 0);
    RETURN NEXT;
  END LOOP;
  -- For outbox_flush_read(), in the same message.
  PERFORM set_config('lockstep.outbox_unflushed', CASE WHEN unflushed THEN 'yes' ELSE '' END, false);
END
$$;
`
