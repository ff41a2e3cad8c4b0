/** A position that two paths create after looking whether it is there: the race of a check and an insert. */
export const CREATE = `
  DROP TABLE IF EXISTS position;
  CREATE TABLE position (id bigserial PRIMARY KEY, symbol text NOT NULL)`

export const FIND = 'SELECT id FROM position WHERE symbol = $1'
export const OPEN = 'INSERT INTO position (symbol) VALUES ($1)'
export const DUPLICATES = `
  SELECT count(*)::int AS n FROM (SELECT symbol FROM position GROUP BY symbol HAVING count(*) > 1) twice`

/** The same with an index that refuses the second. */
export const CREATE_UNIQUE = `${CREATE}; CREATE UNIQUE INDEX ON position (symbol)`

export const WAITS_FOR_LEASE = 'SELECT EXISTS (SELECT FROM lockstep.lease_waiters) AS yes'
