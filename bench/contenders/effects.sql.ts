export const CREATE_EFFECTS = `
  CREATE TABLE effects (place bigserial PRIMARY KEY, key text NOT NULL, number bigint NOT NULL, payload json NOT NULL)`

/** The effect of one event. `number` says where it stands among those of its key. */
export const INSERT_EFFECT = 'INSERT INTO effects (key, number, payload) VALUES ($1, $2, $3)'

/** The same effect for a list of events. */
export const INSERT_EFFECTS = `
  INSERT INTO effects (key, number, payload)
  SELECT * FROM unnest($1::text[], $2::bigint[], $3::json[])`

/** Effects that are there twice, and those behind a later one of their key. */
export const WRONG_EFFECTS = `
  SELECT count(*)::int AS answer
    FROM (SELECT number, lag(number) OVER (PARTITION BY key ORDER BY place) AS before FROM effects) AS e
   WHERE number <= before`
export const COUNT_EFFECTS = 'SELECT count(*)::int AS answer FROM effects'
