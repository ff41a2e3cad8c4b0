-- True for headers that are certainly an object of text, as JSON.stringify() writes one without escapes: a check that costs a tenth of
-- outbox_check_headers(), which decides about all others. The headers are valid JSON: of any other text it says nothing. The planner inlines it.
CREATE FUNCTION :"schema".outbox_plain_headers(headers text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT headers ~ '^[{]("[^"\\]*": ?"[^"\\]*"[,} ]+)+$' $$;
