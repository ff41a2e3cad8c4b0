export const CREATE_EFFECTS = `
  CREATE TABLE effects (place bigserial PRIMARY KEY, key text NOT NULL, seq int NOT NULL, id uuid NOT NULL)`

/** The effect of an event. Nothing in the table keeps a second one out: that is the consumer's work. */
export const INSERT_EFFECT = 'INSERT INTO effects (key, seq, id) VALUES ($1, $2, $3)'

export const COUNT_EFFECTS = `
  SELECT count(*)::int AS effects, count(DISTINCT (key, seq))::int AS events FROM effects`

/** In the order in which they were written: those of a key, one after the other. */
export const ALL_EFFECTS = 'SELECT key, seq, id::text AS id FROM effects ORDER BY place'

export const COUNT_WRITTEN = 'SELECT count(*)::int AS written FROM lockstep.outbox_events WHERE topic = $1'

/** Effects of events that do not exist, and events without an effect. */
export const UNMATCHED = `
  SELECT count(*) FILTER (WHERE o.written IS NULL)::int AS invented, count(*) FILTER (WHERE e.there IS NULL)::int AS missing
    FROM (SELECT key, seq, uuid AS id, true AS written FROM lockstep.outbox_events WHERE topic = $1) AS o
    FULL JOIN (SELECT DISTINCT key, seq, id, true AS there FROM effects) AS e USING (key, seq, id)`
