import { SCHEMA } from '../scenarios/scenario.ts'

/**
 * Keeps what the outbox removes: each cursor, and what was parked with it. The copy is written in the transaction of the original. So a crash
 * takes both or neither.
 */
export const RECORD = `
  CREATE TABLE ${SCHEMA}.traced_cursors (xid xid8, dispatcher text, shard smallint, version bigint, fence bigint, prev text, next text, after_id bigint, done boolean);
  CREATE TABLE ${SCHEMA}.traced_aside (xid xid8, dispatcher text, id bigint);
  CREATE FUNCTION ${SCHEMA}.trace_cursor() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
  BEGIN
    INSERT INTO ${SCHEMA}.traced_cursors VALUES (pg_current_xact_id(), NEW.dispatcher, NEW.shard, NEW.version, NEW.fence, NEW.prev::text, NEW.next::text,
                                                 NEW.after_id, NEW.done);
    RETURN NULL;
  END $$;
  CREATE FUNCTION ${SCHEMA}.trace_aside() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
  BEGIN
    INSERT INTO ${SCHEMA}.traced_aside VALUES (pg_current_xact_id(), NEW.dispatcher, NEW.id);
    RETURN NULL;
  END $$;
  CREATE TRIGGER trace AFTER INSERT ON ${SCHEMA}.outbox_cursors FOR EACH ROW EXECUTE FUNCTION ${SCHEMA}.trace_cursor();
  CREATE TRIGGER trace AFTER INSERT ON ${SCHEMA}.outbox_parked_events FOR EACH ROW EXECUTE FUNCTION ${SCHEMA}.trace_aside();`

export const EVENTS = `
  SELECT ${SCHEMA}.outbox_shard(e.bucket, d.shards)::int AS shard, e.id::text AS position, e.xid::text AS xid, e.key AS stream, e.seq::text AS seq, e.uuid::text AS id
    FROM ${SCHEMA}.outbox_events e CROSS JOIN ${SCHEMA}.outbox_dispatchers d ORDER BY e.id`
export const TICKS = `SELECT t.xmin::text AS xid, t.snapshot::text AS snapshot FROM ${SCHEMA}.outbox_ticks t ORDER BY t.id`
export const CURSORS = `
  SELECT c.shard::int AS shard, c.version::text AS version, c.fence::text AS fence, c.prev, c.next, c.after_id::text AS after, c.done,
         (SELECT array_agg(a.id::text ORDER BY a.id) FROM ${SCHEMA}.traced_aside a
            JOIN ${SCHEMA}.outbox_events e ON e.id = a.id CROSS JOIN ${SCHEMA}.outbox_dispatchers d
           WHERE a.xid = c.xid AND ${SCHEMA}.outbox_shard(e.bucket, d.shards) = c.shard) AS aside
    FROM ${SCHEMA}.traced_cursors c ORDER BY c.shard, c.version`
export const WAITING = `SELECT e.id::text AS position FROM ${SCHEMA}.outbox_parked_events e ORDER BY e.id`
export const CRASHES = `SELECT greatest(count(*) - 1, 0)::int AS crashes FROM ${SCHEMA}.epochs`
