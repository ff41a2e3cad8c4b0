/** The table of the other database, and how events get into it. `place` says in which order they did. */

export const CREATE = `
  CREATE TABLE received (
    place bigserial PRIMARY KEY, topic text NOT NULL, key text NOT NULL, seq bigint NOT NULL, headers text NOT NULL, body bytea NOT NULL)`

/** The bytes as hexadecimal text: an array of them is read by both drivers alike. */
export const INSERT = `
  INSERT INTO received (topic, key, seq, headers, body)
  SELECT topic, key, seq::bigint, headers, decode(body, 'hex')
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) r (topic, key, seq, headers, body)`

export const READ = 'SELECT headers, body FROM received WHERE topic = $1 ORDER BY place'
