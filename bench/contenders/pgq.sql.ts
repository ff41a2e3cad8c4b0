export const CREATE_QUEUE = `
  CREATE EXTENSION IF NOT EXISTS pgq;
  SELECT pgq.create_queue('trades');
  SELECT pgq.register_consumer('trades', 'bench')`

/** The key and the headers travel as the first two of its extra columns. */
export const INSERT_EVENT = `SELECT pgq.insert_event('trades', $1, $3, $2, $4, NULL, NULL)`
export const FILL_EVENTS = `
  SELECT count(pgq.insert_event('trades', 'trades', event->>'payload', event->>'key', event->>'headers', NULL, NULL))
    FROM json_array_elements($1::json) AS event`

/** What its ticker does; forced, so that it need not wait for enough events or for time to pass. */
export const FORCE_TICK = `SELECT pgq.force_tick('trades')`
export const TICK = `SELECT pgq.ticker('trades')`

export const NEXT_BATCH = `SELECT pgq.next_batch('trades', 'bench') AS batch`
export const GET_EVENTS = 'SELECT ev_id, ev_time, ev_type, ev_data, ev_extra1, ev_extra2 FROM pgq.get_batch_events($1)'
export const FINISH_BATCH = 'SELECT pgq.finish_batch($1)'
