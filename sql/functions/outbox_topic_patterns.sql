-- What a list of topics is compared by: topic LIKE ANY(patterns). Null: all topics. (E'': no setting of the session changes what it means.)
CREATE FUNCTION :"schema".outbox_topic_patterns(topics text[]) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE WHEN topics IS NOT NULL THEN ARRAY(
    SELECT CASE WHEN right(t.plain, 1) = '*' THEN left(t.plain, -1) || '%' ELSE t.plain END
      FROM (SELECT replace(replace(replace(n, E'\\', E'\\\\'), '%', E'\\%'), '_', E'\\_') AS plain FROM unnest(topics) AS n) AS t) END
$$;
