-- All guards, what they counted, and whether their triggers are there and enabled. `state`: `active`; `missing`, `disabled`; `partial`,
-- where a partition could be truncated; `moved`, where the table has another name now or another table has its name; `broken`, where a column of the key is gone.
CREATE FUNCTION :"schema".guard_list() RETURNS TABLE (
  id integer, relation text, key text, held text, mode text, percent integer, reason text, added_at timestamptz, changed_at timestamptz,
  unlocked bigint, listed bigint, refused bigint, state text
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  SELECT g.id, g.relation, g.key, g.held, g.mode, g.percent, g.reason, g.added_at, g.changed_at,
         coalesce(pg_sequence_last_value(to_regclass(format('%I.%I', :'schema', 'guard_' || g.id || '_unlocked'))), 0),
         coalesce(pg_sequence_last_value(to_regclass(format('%I.%I', :'schema', 'guard_' || g.id || '_listed'))), 0),
         coalesce(pg_sequence_last_value(to_regclass(format('%I.%I', :'schema', 'guard_' || g.id || '_refused'))), 0),
         CASE WHEN found.rows IS NULL THEN 'missing'
              WHEN found.off THEN 'disabled'
              WHEN found.relation IS DISTINCT FROM to_regclass(g.relation)::oid THEN 'moved'
              WHEN EXISTS (SELECT FROM unnest(g.columns) AS named WHERE NOT EXISTS (
                     SELECT FROM pg_attribute a WHERE a.attrelid = found.relation AND a.attname = named AND a.attnum > 0 AND NOT a.attisdropped))
                THEN 'broken'
              WHEN found.truncates < found.parts THEN 'partial'
              ELSE 'active' END
    FROM :"schema".guards g
   CROSS JOIN LATERAL (
     SELECT max(t.tgrelid) FILTER (WHERE t.tgname = 'lockstep_guard_' || g.id AND t.tgparentid = 0) AS relation,
            max(1) FILTER (WHERE t.tgname = 'lockstep_guard_' || g.id AND t.tgparentid = 0) AS rows,
            coalesce(bool_or(t.tgenabled IN ('D', 'R')), false) AS off,
            count(*) FILTER (WHERE t.tgname = 'lockstep_guard_' || g.id || '_truncate') AS truncates,
            (SELECT greatest(1, count(*)) FROM pg_partition_tree(
              (SELECT o.tgrelid::regclass FROM pg_trigger o WHERE o.tgname = 'lockstep_guard_' || g.id AND o.tgparentid = 0 AND o.tgfoid = f.oid LIMIT 1))) AS parts
       FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace AND (n.nspname = :'schema')
       JOIN pg_trigger t ON t.tgfoid = f.oid
      WHERE f.proname = 'guard_' || g.id
      GROUP BY f.oid
     UNION ALL
     SELECT NULL, NULL, false, 0, 1
     LIMIT 1
   ) AS found
   ORDER BY g.relation, g.key
$$;
