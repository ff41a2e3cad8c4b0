-- Which transactions every dispatcher has passed, in all its shards. Null: no dispatcher is registered, or it is not known: one has yet to
-- read, or the cursors are another server's.
CREATE FUNCTION :"schema".outbox_passed() RETURNS xid8
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  here text := (SELECT s.system_identifier::text FROM pg_control_system() AS s);
  passed xid8;
BEGIN
  IF NOT EXISTS (SELECT FROM :"schema".outbox_home h WHERE h.system = here)
     OR EXISTS (SELECT FROM :"schema".outbox_dispatchers d WHERE d.system <> here) THEN
    RETURN NULL;
  END IF;
  -- PostgreSQL 14 has no min() of these.
  SELECT (array_agg(p.xid ORDER BY p.xid))[1] INTO passed
    FROM :"schema".outbox_dispatchers d
    CROSS JOIN LATERAL generate_series(0, d.shards - 1) AS n(shard)
    LEFT JOIN LATERAL (SELECT * FROM :"schema".outbox_cursors o
                        WHERE o.dispatcher = d.name AND o.shard = n.shard ORDER BY o.version DESC LIMIT 1) AS c ON true
    CROSS JOIN LATERAL (SELECT CASE WHEN c.done THEN pg_snapshot_xmin(c.next) ELSE pg_snapshot_xmin(c.prev) END AS xid) AS p
   HAVING count(*) = count(c.version);
  RETURN passed;
END
$$;
