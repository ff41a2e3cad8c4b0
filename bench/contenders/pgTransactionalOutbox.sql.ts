/** In the order of the array, a moment apart: its order is created_at's. */
export const FILL_MESSAGES = `
  INSERT INTO outbox (id, aggregate_type, aggregate_id, message_type, segment, payload, metadata, created_at)
  SELECT gen_random_uuid(), 'trades', event->>'key', 'traded', event->>'key', (event->'payload')::jsonb, (event->'headers')::jsonb,
         clock_timestamp()
    FROM json_array_elements($1::json) AS event`
