import type { Mutant } from './mutant.ts'

/** Of the rooms outbox and inbox. */
export const outbox: readonly Mutant[] = [
  {
    name: 'number-without-lock',
    why: "Events are numbered without the stream's lock: two writers take the same number.",
    file: 'sql/0006_outbox.sql',
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
    file: 'sql/0012_outbox_read.sql',
    find: `
     OR pg_advisory_xact_lock(('x' || encode(substr(digest, 1, 8), 'hex'))::bit(64)::bigint) IS NULL THEN`,
    replace: ' THEN',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/streamLock.pg.test.ts',
      test: 'with a new segment between them',
    },
  },
  {
    name: 'tick-without-own-xid',
    why: 'A tick leaves out the transaction that records it: what that one writes is taken for delivered, or comes too late.',
    file: 'sql/0012_outbox_read.sql',
    find: `(SELECT pg_snapshot_xip(now) AS x
                                          UNION SELECT me WHERE me < pg_snapshot_xmax(now)) AS r`,
    replace: '(SELECT pg_snapshot_xip(now) AS x) AS r',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/ticks.pg.test.ts',
      test: 'who records a tick and writes on comes behind what was committed in between',
    },
  },
  {
    name: 'window-without-horizon',
    why: 'A window takes in what was committed after its end, too: events that others of their stream come before.',
    file: 'sql/0012_outbox_read.sql',
    find: 'WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most)$limited$',
    replace: 'ORDER BY v.id LIMIT most)$limited$',
    caughtBy: { by: 'attack', attack: 'order', goal: 'first deliveries out of order, or with a gap' },
  },
  {
    name: 'enqueue-on-the-callers-path',
    why: 'Enqueuing runs with the rights of the owner: an operator of the caller that comes before the real one would, too.',
    file: 'sql/0012_outbox_read.sql',
    find: `) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET`,
    replace: `) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET`,
    caughtBy: {
      by: 'test',
      file: 'src/outbox/searchPath.pg.test.ts',
      test: 'nothing on the path of whoever enqueues runs with the rights of the owner',
    },
  },
  {
    name: 'open-writers-forgotten',
    why: 'Of transactions that were open at the last look, and have smaller ids than what was delivered, nothing is read any more.',
    file: 'sql/0012_outbox_read.sql',
    find: 'SELECT t.* FROM unnest(ended) AS x(xid)',
    replace: 'SELECT t.* FROM unnest(ended[1:0]) AS x(xid)',
    caughtBy: { by: 'lab', scenario: 'outbox', fault: 'none', invariant: 'order per key' },
  },
  {
    name: 'open-writer-keeps-segments',
    why: 'A writer that stays open counts as one that has ended: every segment since it began is read again with every window.',
    file: 'sql/0012_outbox_read.sql',
    find: 'ended := ARRAY(SELECT x FROM pg_snapshot_xip(a) AS x WHERE pg_visible_in_snapshot(x, z) ORDER BY x);',
    replace: 'ended := ARRAY(SELECT x FROM pg_snapshot_xip(a) AS x ORDER BY x);',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/heldTransaction.pg.test.ts',
      test: 'a read costs the same',
    },
  },
  {
    name: 'parked-read-without-limit',
    why: 'The events of parked streams are read without a limit in bytes: they do not fit into the memory of the process.',
    file: 'sql/0012_outbox_read.sql',
    find: 'IF events = max_events OR spent >= most_bytes THEN',
    replace: 'IF events = max_events THEN',
    and: [
      {
        file: 'sql/0012_outbox_read.sql',
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
    file: 'src/outbox/deliver.ts',
    find: 'if (unreadable.length === 0) return',
    replace: 'if (unreadable.length >= 0) return',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/eventSizes.pg.test.ts',
      test: 'gives up an event that is too large like one that the sink refuses',
    },
  },
  {
    name: 'sent-before-durable',
    why: 'A batch is sent before what it shows is on disk.',
    file: 'src/outbox/reader.ts',
    find: "if (row.verdict === 'visible' && events.length > 0) visible = true",
    replace: 'visible = false',
    caughtBy: { by: 'attack', attack: 'crash', goal: 'deliveries whose event is not in the database' },
  },
  {
    name: 'window-kept-over-crash',
    why: 'What was read before a crash is kept in memory, and sent and counted on in the next life of the server.',
    file: 'src/outbox/reader.ts',
    find: "return [...windows.values()].every((window) => window === 'lost' || window.life === life)",
    replace: 'return life !== undefined',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/interleavings2.pg.test.ts',
      test: 'what a crash took between reading and the flush is not sent',
    },
  },
  {
    name: 'cursor-without-fence',
    why: "Who has lost its shard moves the cursor all the same, and nobody looks at fence and version: it is the next one's.",
    file: 'sql/0012_outbox_read.sql',
    find: 'SELECT my_dispatcher, m.shard, m.version + 1, m.fence, m.prev',
    replace: 'SELECT my_dispatcher, m.shard, c.version + 1, c.fence, m.prev',
    and: [
      {
        file: 'sql/0012_outbox_read.sql',
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
      test: 'the lease is gone: the cursor stays where the next owner has it',
    },
  },
  {
    name: 'old-cursors-without-move',
    why: 'Older cursors are taken away also where the last one was not moved: after a crash none may be left.',
    file: 'sql/0012_outbox_read.sql',
    find: ' AND my_shards[i] = ANY(moved) THEN',
    replace: ' THEN',
    caughtBy: {
      by: 'test',
      file: 'src/outbox/move.pg.test.ts',
      test: 'nothing is taken away for the sake of a cursor that a crash has taken back',
    },
  },
  {
    name: 'woken-by-sequence',
    why: 'The dispatcher reads only when the sequence has moved, which it does before the commit.',
    file: 'sql/0012_outbox_read.sql',
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
      test: 'an open transaction holds up its own stream alone, and is delivered when it commits',
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
      test: 'the stream stops at it, the others of its shard go on, and after the mend it catches up in order',
    },
  },
  {
    name: 'inbox-without-position',
    why: 'The inbox accepts what comes without looking at its position: what comes twice counts twice.',
    file: 'sql/0009_inbox.sql',
    find: 'i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key AND i.seq = my_seq - 1;',
    replace: 'i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key;',
    caughtBy: { by: 'lab', scenario: 'outbox', fault: 'terminate', invariant: 'exactly once' },
  },
]
