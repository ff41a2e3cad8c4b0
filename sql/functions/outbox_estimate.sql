-- Superseded by outbox_estimate_wanted() since 1.0.0.
CREATE FUNCTION :"schema".outbox_estimate(
  slots smallint[], my_group smallint, first_xid xid8, end_xid xid8, after_id bigint,
  OUT events bigint, OUT exact boolean, OUT oldest timestamptz
) LANGUAGE sql STABLE
AS $$ SELECT * FROM :"schema".outbox_estimate_wanted(slots, my_group, first_xid, end_xid, after_id, NULL, NULL) $$;
