-- compatible-from: 1
-- Answers to requests with an Idempotency-Key, one row a key. The scope comes first: a key of one tenant is not another's. Both are
-- kept as they are, so that all of a tenant can be found and deleted; the library bounds them to 255 bytes each. COLLATE "C": they
-- are compared byte by byte, whatever the database's collation, and its changes do not touch the index.
CREATE TABLE :"schema".idempotency (
  scope text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  -- SHA-256 over method, path and body of the request.
  fingerprint bytea NOT NULL,
  status integer NOT NULL,
  -- A list of pairs. Only the headers that were chosen: no cookies, no credentials.
  headers json NOT NULL,
  body bytea NOT NULL,
  created_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (scope, key)
);
CREATE INDEX idempotency_expires_at ON :"schema".idempotency (expires_at);
