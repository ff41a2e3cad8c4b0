import type { Mutant } from './mutant.ts'

/** Of the modules outbox and inbox. */
export const outbox: readonly Mutant[] = [
  {
    name: 'epoch-reused',
    why: 'A promoted standby goes on in the history of its primary: what was read there counts as read here.',
    file: 'sql/functions/ensure_incarnation.sql',
    find: 'SELECT gen_random_uuid(), e.timeline + e.timeline_offset',
    replace: "SELECT md5('history')::uuid, e.timeline + e.timeline_offset",
    caughtBy: {
      by: 'test',
      file: 'src/outbox/failover.pg.test.ts',
      test: 'are reported at the first number that comes again, after a failover to a standby that is behind',
    },
  },
  {
    name: 'event-without-generation',
    why: 'Events can be numbered before the server epoch has begun: their numbers are assigned again without a sign.',
    file: 'sql/functions/outbox_append.sql',
    find: `    PERFORM :"schema".epoch_mark_now();`,
    replace: '',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/failover.pg.test.ts',
      test: 'are reported at the first number that comes again, after a failover to a standby that is behind',
    },
  },
  {
    name: 'number-without-lock',
    why: "Events are numbered without the stream's lock: two writers take the same number.",
    file: 'sql/functions/outbox_lock_streams.sql',
    find: `
    FOR next IN SELECT DISTINCT :"schema".outbox_stream_lock(s) FROM unnest(streams) AS s ORDER BY 1 LOOP
      PERFORM pg_advisory_xact_lock(next);
    END LOOP;`,
    replace: `
    NULL;`,
    caughtBy: { by: 'attack', attack: 'order', goal: 'writers whose COMMIT was not answered' },
  },
  {
    name: 'one-event-without-lock',
    why: "A single event is numbered without its stream's lock: at the border of two segments, two events get the same number.",
    file: 'tools/schema/outboxAppend.sql.ts',
    find: `
       OR pg_advisory_xact_lock(\${streamLockOf('digest')}) IS NULL\``,
    replace: '`',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/streamLock.pg.test.ts',
      test: 'with a new segment between them',
    },
  },
  {
    name: 'tick-without-own-xid',
    why: 'A tick leaves out the transaction that records it: what that one writes is taken for delivered, or comes too late.',
    file: 'sql/functions/outbox_tick.sql',
    find: `(SELECT pg_snapshot_xip(now) AS x
                                          UNION SELECT me WHERE me < pg_snapshot_xmax(now)) AS r`,
    replace: '(SELECT pg_snapshot_xip(now) AS x) AS r',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/ticks.pg.test.ts',
      test: 'delivers a writer that records a tick and continues after what was committed in between',
    },
  },
  {
    name: 'window-without-horizon',
    why: 'A window takes in what was committed after its end, too: events that others of their stream come before.',
    file: 'tools/schema/outboxRead.sql.ts',
    find: 'WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most)`',
    replace: 'ORDER BY v.id LIMIT most)`',
    caughtBy: { by: 'attack', attack: 'order', goal: 'first deliveries out of order, or with a gap' },
  },
  {
    name: 'enqueue-on-the-callers-path',
    why: 'Enqueuer runs with the rights of the owner: an operator of the caller that comes before the real one would, too.',
    file: 'tools/schema/outboxAppend.sql.ts',
    find: `) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET`,
    replace: `) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET`,
    caughtBy: {
      by: 'test',
      file: 'src/outbox/searchPath.pg.test.ts',
      test: 'runs nothing of the caller’s search path with the rights of the owner',
    },
  },
  {
    name: 'open-writers-forgotten',
    why: 'Of transactions that were open at the last look, and have smaller ids than what was delivered, nothing is read any more.',
    file: 'tools/schema/outboxRead.sql.ts',
    find: 'SELECT t.* FROM unnest(ended) AS x(xid)',
    replace: 'SELECT t.* FROM unnest(ended[1:0]) AS x(xid)',
    caughtBy: { by: 'lab', scenario: 'outbox', fault: 'none', invariant: 'order per key' },
  },
  {
    name: 'open-writer-keeps-segments',
    why: 'An open writer counts as one that has ended: every segment since it began is read again with every window.',
    file: 'tools/schema/outboxRead.sql.ts',
    find: 'ended := ARRAY(SELECT x FROM pg_snapshot_xip(a) AS x WHERE pg_visible_in_snapshot(x, z) ORDER BY x);',
    replace: 'ended := ARRAY(SELECT x FROM pg_snapshot_xip(a) AS x ORDER BY x);',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/heldTransaction.pg.test.ts',
      test: 'reads at the same cost',
    },
  },
  {
    name: 'parked-read-without-limit',
    why: 'The events of parked streams are read without a limit in bytes: they do not fit into the memory of the process.',
    file: 'sql/functions/outbox_parked_due.sql',
    find: 'IF events = max_events OR spent >= most_bytes OR held THEN',
    replace: 'IF events = max_events OR held THEN',
    and: [
      {
        file: 'sql/functions/outbox_parked_due.sql',
        find: '    EXIT WHEN spent >= most_bytes;\n    events := 0;',
        replace: '    events := 0;',
      },
    ],
    caughtBy: {
      by: 'test',
      file: 'src/outbox/eventSizes.pg.test.ts',
      test: 'reads parked streams with large payloads in pieces',
    },
  },
  {
    name: 'unreadable-event-sent',
    why: 'An event that was too large to be read goes to the sink, without its payload.',
    file: 'src/outbox/event.ts',
    find: 'if (this.#unreadableBytes !== undefined) {',
    replace: 'if (this.#unreadableBytes === -1) {',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/eventSizes.pg.test.ts',
      test: 'gives up an event that is too large like one that the sink refuses',
    },
  },
  {
    name: 'sent-before-durable',
    why: 'A batch is sent before what it shows is on disk.',
    file: 'sql/functions/outbox_read.sql',
    find: 'CASE WHEN alone AND pg_current_wal_flush_lsn() >= written THEN',
    replace: 'CASE WHEN alone THEN',
    caughtBy: { by: 'attack', attack: 'crash', goal: 'deliveries whose event is not in the database' },
  },
  {
    name: 'ring-hides-other-commits',
    why: 'A read that was rung for takes every commit after the ring for that of the ring.',
    file: 'sql/functions/outbox_read.sql',
    find: 'IF rung <= written AND written - rung <= 64 THEN',
    replace: 'IF rung <= written THEN',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/durableAtRing.pg.test.ts',
      test: 'finds an event not durable that was committed after the ring',
    },
  },
  {
    name: 'window-kept-over-crash',
    why: 'What was read before a crash is kept in memory, and sent and used in the next server epoch.',
    file: 'src/outbox/reader.ts',
    find: "return [...windows.values()].every((window) => window === 'lost' || window.life === life)",
    replace: 'return life !== undefined',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/flushToDisk.pg.test.ts',
      test: 'does not send what a crash took between the read and the flush',
    },
  },
  {
    name: 'owned-in-any-epoch',
    why: 'What a dispatcher read before a failover counts after it: events that have the numbers of those that were sent are deleted.',
    file: 'sql/functions/outbox_owns.sql',
    find: 'AND EXISTS (SELECT FROM :"schema".outbox_here(my_dispatcher) AS h WHERE h.life = my_life AND NOT h.elsewhere)',
    replace: 'AND EXISTS (SELECT FROM :"schema".outbox_here(my_dispatcher) AS h WHERE NOT h.elsewhere)',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/serverEpoch.pg.test.ts',
      test: 'which changes nothing',
    },
  },
  {
    name: 'taken-without-registration',
    why: 'A process that was stopped while its dispatcher was removed creates the cursors again, and sends everything again.',
    file: 'sql/functions/outbox_take_shard.sql',
    find: `
  IF NOT FOUND THEN
    RETURN 'removed';
  END IF;`,
    replace: '',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/removedDispatcher.pg.test.ts',
      test: 'ends run() with an error, without sending again',
    },
  },
  {
    name: 'topics-changed-without-fences',
    why: 'A list of topics is changed, and owners under the old one move on: what only the new list wants is passed.',
    file: 'sql/functions/outbox_subscribe.sql',
    find: ':"schema".next_fence()',
    replace: 'c.fence',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/topics.pg.test.ts',
      test: 'an owner under the old list is fenced off by the change',
    },
  },
  {
    name: 'owned-under-any-topics',
    why: 'A process takes a shard whatever its list of topics is, and delivers by a list that it was not started with.',
    file: 'sql/functions/outbox_take_shard.sql',
    find: 'IF d.topics IS DISTINCT FROM my_topics THEN',
    replace: 'IF false THEN',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/topics.pg.test.ts',
      test: 'goes back to all topics, and a process of another list takes no shard',
    },
  },
  {
    name: 'split-without-fences',
    why: 'Shards are split, and their old owners can go on: the first part of a shard has two owners.',
    file: 'sql/functions/outbox_split.sql',
    find: 'c.shard * parts + n.part, top + 1, :"schema".next_fence(),',
    replace: 'c.shard * parts + n.part, top + 1, c.fence,',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/split.pg.test.ts',
      test: 'an owner that still has a batch in progress can move no cursor, and its parts wait for its lease',
    },
  },
  {
    name: 'parts-taken-beside-old-owner',
    why: 'The parts of a shard are given away while its old owner still sends.',
    file: 'sql/functions/outbox_take_shard.sql',
    find: 'AND l.token IS NOT NULL AND l.expires_at > clock_timestamp() AND l.fence < d.split_fence) THEN',
    replace: 'AND false) THEN',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/split.pg.test.ts',
      test: 'an owner that still has a batch in progress can move no cursor, and its parts wait for its lease',
    },
  },
  {
    name: 'parked-streams-stay-behind',
    why: 'Shards are split, and streams that wait keep the number of the old shard: a later event is sent before those that wait.',
    file: 'sql/functions/outbox_split.sql',
    find: 'SET shard = :"schema".outbox_shard(:"schema".outbox_bucket(p.stream), to_shards::smallint)',
    replace: 'SET shard = p.shard',
    caughtBy: { by: 'test', file: 'src/outbox/split.pg.test.ts', test: 'streams that wait follow their shard' },
  },
  {
    name: 'split-cursors-begin-here',
    why: 'The parts of a shard begin with the present and not with its cursor: what was not delivered is lost.',
    file: 'sql/functions/outbox_split.sql',
    find: 'c.prev, c.next, c.after_id, c.done, c.seen_id\n    FROM old c',
    replace: 'pg_current_snapshot(), pg_current_snapshot(), 0, true, c.seen_id\n    FROM old c',
    caughtBy: { by: 'test', file: 'src/outbox/split.pg.test.ts', test: 'a drain continues with the new shards' },
  },
  {
    name: 'cancelled-flush-counts',
    why: 'A cancelled wait for the synchronous standby counts as a flush: what the standby lacks is sent.',
    file: 'src/outbox/flushToDisk.ts',
    find: 'if (cancelled) throw',
    replace: 'if (false) throw',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/flushToDisk.pg.test.ts',
      test: 'rejects a flush whose wait for the standby was canceled',
    },
  },
  {
    name: 'foreign-ticks-kept',
    why: 'A server that takes over a restored outbox without events keeps the ticks of the original, which lie in its future.',
    file: 'sql/functions/outbox_forget_xids.sql',
    find: `
  DELETE FROM :"schema".outbox_ticks;`,
    replace: '',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/serverEpoch.pg.test.ts',
      test: 'forgets the transactions of another server in an outbox without events',
    },
  },
  {
    name: 'session-named-for-any-sink',
    why: 'Shards are taken over when a session has ended, although the sink takes what the last owner sends too late.',
    file: 'src/outbox/ownership.ts',
    find: 'if (setting.plan.sink.enforcesFences === true) this.#mark',
    replace: 'this.#mark',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/deadOwners.pg.test.ts',
      test: 'leases name no session where the sink does not enforce fences',
    },
  },
  {
    name: 'drain-forgets-its-limit',
    why: 'A drain delivers all that it has read, also where that is more than maxEvents.',
    file: 'src/outbox/drainLimit.ts',
    find: 'const cut = events.length <= this.#eventsLeft ? events : events.slice(0, this.#eventsLeft)',
    replace: 'const cut = events',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/drain.pg.test.ts',
      test: 'ends at maxEvents, and the next one continues',
    },
  },
  {
    name: 'cursor-without-fence',
    why: "A process that has lost its shard moves the cursor all the same, and fence and version are not compared: it is the next one's.",
    file: 'sql/functions/outbox_move.sql',
    find: 'SELECT my_dispatcher, m.shard, m.version + 1, m.fence, m.prev',
    replace: 'SELECT my_dispatcher, m.shard, c.version + 1, c.fence, m.prev',
    and: [
      {
        file: 'sql/functions/outbox_move.sql',
        find: 'WHERE c.version = m.version AND c.fence = m.fence AND m.life = here.life',
        replace: 'WHERE m.life = here.life',
      },
      {
        file: 'src/outbox/shard.ts',
        find: 'if (report.down !== undefined || this.lease.signal.aborted) {',
        replace: 'if (report.down !== undefined) {',
      },
      {
        file: 'src/outbox/shard.ts',
        find: 'while (!this.lease.signal.aborted) {',
        replace: 'for (;;) {',
      },
    ],
    caughtBy: {
      by: 'test',
      file: 'src/outbox/dispatch.pg.test.ts',
      test: 'leaves the cursor to the next owner after the lease was lost',
    },
  },
  {
    name: 'cursor-moved-with-any-fence',
    why: 'A cursor moves from the version that was read, whatever fence the caller has: the last owner moves it once more.',
    file: 'sql/functions/outbox_move.sql',
    find: 'WHERE c.version = m.version AND c.fence = m.fence AND m.life = here.life',
    replace: 'WHERE c.version = m.version AND m.life = here.life',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/sameInSql.pg.test.ts',
      test: 'moves a cursor exactly when fence, version and server epoch are those of the caller',
    },
  },
  {
    name: 'owned-with-any-fence',
    why: "A former owner of a shard still reads and changes its parked streams: the fence of the cursor is not compared with the caller's.",
    file: 'sql/functions/outbox_owns.sql',
    find: 'SELECT o.fence = my_fence FROM',
    replace: 'SELECT true FROM',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/sameInSql.pg.test.ts',
      test: 'owns a shard exactly when fence and server epoch are those of its newest cursor',
    },
  },
  {
    name: 'stream-lock-of-other-bytes',
    why: "The schema takes a stream's lock from other bytes of its hash than the library: their writers do not exclude each other.",
    file: 'tools/schema/hashes.sql.ts',
    find: `export function streamLockOf(bytes: string): string {
  return lockNumber(bytes)`,
    replace: `export function streamLockOf(bytes: string): string {
  return lockNumber(\`substr(\${bytes}, 2)\`)`,
    caughtBy: {
      by: 'test',
      file: 'src/outbox/sameInSql.pg.test.ts',
      test: 'takes the same locks for a stream in the library and in every function of the schema',
    },
  },
  {
    name: 'library-locks-other-groups',
    why: 'The library takes the group of a stream from other bits than the schema: a bulk write in SQL does not wait for its writers.',
    file: 'src/outbox/streamLocks.ts',
    find: 'const BUCKET_AT = 14',
    replace: 'const BUCKET_AT = 13',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/sameInSql.pg.test.ts',
      test: 'takes the same locks for a stream in the library and in every function of the schema',
    },
  },
  {
    name: 'lock-id-without-zero-bytes',
    why: 'The schema hashes schema, domain and key without a zero byte between them: other ids than the library has.',
    file: 'tools/schema/hashes.sql.ts',
    find: "digest(`decode('00', 'hex') || convert_to(domain, 'UTF8') || decode('00', 'hex')`, ['key'])",
    replace: "digest(`convert_to(domain, 'UTF8')`, ['key'])",
    caughtBy: {
      by: 'test',
      file: 'src/outbox/sameInSql.pg.test.ts',
      test: 'gives the same lock id for a key in the library and in the schema',
    },
  },
  {
    name: 'events-marked-as-delivered',
    why: 'Events are marked when the cursor moves past them: each leaves a dead row, and an old snapshot keeps all of them.',
    file: 'sql/functions/outbox_move.sql',
    find: `
  SELECT array_agg(i.shard) INTO moved FROM inserted i;`,
    replace: `
  SELECT array_agg(i.shard) INTO moved FROM inserted i;
  UPDATE :"schema".outbox_events e SET headers = '{"delivered":"yes"}'
   WHERE e.headers IS NULL AND e.id <= (SELECT max(n) FROM unnest(new_afters) AS n);`,
    caughtBy: {
      by: 'test',
      file: 'src/outbox/deadRows.pg.test.ts',
      test: 'updates and deletes rows for its batches, not for their events',
    },
  },
  {
    name: 'old-cursors-without-move',
    why: 'Older cursors are taken away also where the last one was not moved: after a crash none is left.',
    file: 'sql/functions/outbox_move.sql',
    find: ' AND my_shards[i] = ANY(moved) THEN',
    replace: ' THEN',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/move.pg.test.ts',
      test: 'removes no version that a crashed cursor still needs',
    },
  },
  {
    name: 'woken-by-sequence',
    why: 'The dispatcher reads only when the sequence has moved, which it does before the commit.',
    file: 'tools/schema/outboxRead.sql.ts',
    find: `
    resumed := NOT c.done;
`,
    replace: `
    CONTINUE WHEN c.done AND c.seen_id = (SELECT s.last_value FROM :"schema".outbox_ids s);
    resumed := NOT c.done;
`,
    caughtBy: {
      by: 'test',
      file: 'src/outbox/dispatch.pg.test.ts',
      test: 'delivers an open transaction when it commits, and delays no other stream',
    },
  },
  {
    name: 'stream-not-parked',
    why: 'After an event that was refused, the later ones of its stream are sent as if nothing had happened.',
    file: 'src/outbox/eventColumns.ts',
    find: "if (flag === 'w' || flag === 'b') waiting.add(place)",
    replace: '',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/parked.pg.test.ts',
      test: 'stop at a refused event, let the others continue, and catch up in order',
    },
  },
  {
    name: 'held-event-overtaken',
    why: 'An event whose time has not come waits, and the later ones of its stream are sent.',
    file: 'tools/schema/outboxRead.sql.ts',
    find: "bool_or(r.flag IN ('h', 'g')) OVER (PARTITION BY r.topic, r.key ORDER BY r.n) AS held",
    replace: "r.flag IN ('h', 'g') AS held",
    caughtBy: {
      by: 'test',
      file: 'src/outbox/held.pg.test.ts',
      test: 'is not sent before it, holds the later events of its stream, and nothing else',
    },
  },
  {
    name: 'sent-with-the-released',
    why: 'When the event at the head of a held stream is released, a later one goes with it whose time has not come.',
    file: 'sql/functions/outbox_parked_due.sql',
    find: 'held := COALESCE(e.not_before > clock_timestamp(), false);',
    replace: '',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/held.pg.test.ts',
      test: 'waits where operators see it, who release it or skip it',
    },
  },
  {
    name: 'asleep-over-the-time',
    why: 'A dispatcher that rests does not ask when streams of other processes are due: what a process held that died is not sent for up to a minute, and never while all sleep.',
    file: 'src/outbox/reader.ts',
    find: 'Math.min(this.#lookIn(forGood ? ASLEEP_MS : LISTENING_MS, at), at + dueMs + OTHERS_DUE_MS)',
    replace: 'at + (forGood ? ASLEEP_MS : LISTENING_MS)',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/held.pg.test.ts',
      test: 'one that sleeps wakes when it is due',
    },
  },
  {
    name: 'inbox-without-position',
    why: 'The inbox accepts what comes without looking at its position: what comes twice counts twice.',
    file: 'sql/functions/inbox_accept_event.sql',
    find: 'i.topic = my_topic AND i.key = my_key AND i.seq = my_seq - 1',
    replace: 'i.topic = my_topic AND i.key = my_key',
    caughtBy: { by: 'lab', scenario: 'outbox', fault: 'terminate', invariant: 'exactly once' },
  },
  {
    name: 'gap-begins-the-stream',
    why: 'A gap in a new stream leaves a row behind: a caller that catches it commits a position, and no start counts any more.',
    file: 'sql/functions/inbox_accept_event.sql',
    find: `
          DELETE FROM :"schema".inbox i WHERE i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key;`,
    replace: '',
    caughtBy: { by: 'test', file: 'src/inbox/inbox.pg.test.ts', test: 'does not begin a stream with a caught gap' },
  },
  {
    name: 'headers-unchecked',
    why: 'One event is enqueued with whatever headers SQL gives it: sinks can only refuse it.',
    file: 'tools/schema/outboxAppend.sql.ts',
    find: `
    IF headers IS NOT NULL THEN PERFORM :"schema".outbox_check_headers(topic, key, headers); END IF;`,
    replace: '',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/malformedHeaders.pg.test.ts',
      test: 'in enqueue(), enqueue_bytes() and the bulk function',
    },
  },
  {
    name: 'slow-event-forgotten',
    why: 'An event that is in progress when its stream is given up as slow is forgotten: the next try sends it a second time.',
    file: 'src/outbox/concurrentStreams.ts',
    find: `
    this.#pending.set(name, left)`,
    replace: '',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/slowStreams.pg.test.ts',
      test: 'do not delay the others of their shard, and are sent once, in order',
    },
  },
  {
    name: 'goes-idle-without-last-look',
    why: 'A dispatcher that begins to listen does not look once more: what was committed before writers could know is not found.',
    file: 'src/outbox/reader.ts',
    find: `      this.#listeningSince = performance.now()
      this.#pauseMs = BUSY_MS
      this.#dueAt = 0`,
    replace: `      this.#listeningSince = performance.now()
      this.#dueAt = Infinity`,
    caughtBy: {
      by: 'test',
      file: 'src/outbox/bell.pg.test.ts',
      test: 'is not needed for what was committed before writers were asked to ring',
    },
  },
  {
    name: 'revives-what-was-taken',
    why: 'A dispatcher holds a shard again that another one has taken while it rested.',
    file: 'sql/functions/lease_revive.sql',
    find: 'ON l.name = g.name AND l.token = g.token AND l.fence = g.fence',
    replace: 'ON l.name = g.name',
    and: [
      {
        file: 'sql/functions/lease_revive.sql',
        find: '  RETURNING l.token;',
        replace: '  RETURNING (SELECT g.token FROM unnest(names, tokens) AS g(name, token) WHERE g.name = l.name);',
      },
    ],
    caughtBy: {
      by: 'test',
      file: 'src/outbox/bell.pg.test.ts',
      test: 'are lost to a process that takes them meanwhile',
    },
  },
]
