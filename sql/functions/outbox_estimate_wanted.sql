-- How many events of a group of buckets have an id above after_id and a transaction from first_xid on, below end_xid. Equal bounds mean that one
-- transaction, no end_xid no upper bound. Few events are counted. More are estimated: from the ids of the first and of the last ones,
-- which are at both ends of the index. So it costs the same for 1,000 and for 10,000,000 events. With patterns, only events of these topics
-- count, with buckets only theirs: as large a part of all as of the first and the last ones.
CREATE FUNCTION :"schema".outbox_estimate_wanted(
  slots smallint[], my_group smallint, first_xid xid8, end_xid xid8, after_id bigint, patterns text[],
  buckets int4range, OUT events bigint, OUT exact boolean, OUT oldest timestamptz
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  few CONSTANT integer := 50;
  upper_xid xid8 := COALESCE(end_xid, '9223372036854775807'::xid8);
  head_low bigint;
  head_high bigint;
  tail_low bigint;
  tail_high bigint;
  tail integer;
  first integer;
  tail_wanted integer;
BEGIN
  IF first_xid = end_xid THEN
    SELECT count(*), count(*) FILTER (WHERE f.wanted), min(f.id), max(f.id), min(f.enqueued_at) FILTER (WHERE f.wanted)
      INTO first, events, head_low, head_high, oldest
      FROM (SELECT e.id, e.enqueued_at, (patterns IS NULL OR e.topic LIKE ANY(patterns)) AND (buckets IS NULL OR e.bucket::integer <@ buckets) AS wanted FROM :"schema".outbox_events e
             WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket_group = my_group AND e.xid = first_xid AND e.id > after_id
             ORDER BY e.bucket_group, e.xid, e.id LIMIT few) AS f;
  ELSE
    SELECT count(*), count(*) FILTER (WHERE f.wanted), min(f.id), max(f.id), min(f.enqueued_at) FILTER (WHERE f.wanted)
      INTO first, events, head_low, head_high, oldest
      FROM (SELECT e.id, e.enqueued_at, (patterns IS NULL OR e.topic LIKE ANY(patterns)) AND (buckets IS NULL OR e.bucket::integer <@ buckets) AS wanted FROM :"schema".outbox_events e
             WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket_group = my_group AND e.xid >= first_xid AND e.xid < upper_xid AND e.id > after_id
             ORDER BY e.bucket_group, e.xid, e.id LIMIT few) AS f;
  END IF;
  exact := first < few;
  IF exact THEN
    RETURN;
  END IF;
  IF first_xid = end_xid THEN
    SELECT count(*) FILTER (WHERE f.id > head_high), count(*) FILTER (WHERE f.id > head_high AND f.wanted), min(f.id), max(f.id)
      INTO tail, tail_wanted, tail_low, tail_high
      FROM (SELECT e.id, (patterns IS NULL OR e.topic LIKE ANY(patterns)) AND (buckets IS NULL OR e.bucket::integer <@ buckets) AS wanted FROM :"schema".outbox_events e
             WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket_group = my_group AND e.xid = first_xid AND e.id > after_id
             ORDER BY e.bucket_group DESC, e.xid DESC, e.id DESC LIMIT few) AS f;
  ELSE
    SELECT count(*) FILTER (WHERE f.id > head_high), count(*) FILTER (WHERE f.id > head_high AND f.wanted), min(f.id), max(f.id)
      INTO tail, tail_wanted, tail_low, tail_high
      FROM (SELECT e.id, (patterns IS NULL OR e.topic LIKE ANY(patterns)) AND (buckets IS NULL OR e.bucket::integer <@ buckets) AS wanted FROM :"schema".outbox_events e
             WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket_group = my_group AND e.xid >= first_xid AND e.xid < upper_xid AND e.id > after_id
             ORDER BY e.bucket_group DESC, e.xid DESC, e.id DESC LIMIT few) AS f;
  END IF;
  exact := tail < few;
  events := events + tail_wanted + (greatest(tail_low - head_high - 1, 0) * (events + tail_wanted)::float8 / (first + tail)
              * ((few - 1)::float8 / (head_high - head_low) + (few - 1)::float8 / (tail_high - tail_low)) / 2)::bigint;
END
$$;
