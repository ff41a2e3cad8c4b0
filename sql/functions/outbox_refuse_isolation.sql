-- Raises the error for an event that is enqueued at another level than READ COMMITTED, without a number from before the snapshot.
CREATE FUNCTION :"schema".outbox_refuse_isolation() RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  RAISE EXCEPTION 'an event cannot be enqueued at %: its number would be read from a snapshot that is older than the stream''s lock',
    upper(current_setting('transaction_isolation'))
    USING ERRCODE = 'feature_not_supported',
          HINT = 'Use READ COMMITTED, or declare the stream: lockstep.transaction({ isolation, streams: [{ topic, key }] }, fn).';
END
$$;
