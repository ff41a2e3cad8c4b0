-- The largest event that the schema takes and a dispatcher reads: payload and headers together, in bytes. migrate({ maxEventBytes })
-- replaces the function. It is a function and not a row because the planner inlines it: an enqueue pays nothing for the limit. STABLE
-- and not IMMUTABLE: a plan with an inlined function is made again after the function was replaced, one with a folded constant is not.
CREATE FUNCTION :"schema".outbox_max_event_bytes() RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT 1000000::bigint $$;
