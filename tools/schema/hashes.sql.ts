/**
 * The hash from which lock ids and streams follow, and what is taken from it. The expressions stand here once: the functions of this file
 * have them, and those that are called for every event have them inlined (a call of a function in SQL is planned again in each
 * statement). src/locks/lockId.ts and src/outbox/streamLocks.ts have the same in TypeScript; a test compares them.
 */

/**
 * SHA-256 over schema, domain and keys in UTF-8, with a zero byte between them: no text of PostgreSQL has one. The schema is there as bytes:
 * the planner computes what follows from constants once for each plan, and convert_to() is not IMMUTABLE.
 */
function digest(domain: string, keys: readonly string[]): string {
  const parts = keys.map((key) => `convert_to(${key}, 'UTF8')`).join(` || decode('00', 'hex') || `)
  return `sha256(
    :b'schema' || ${domain}${parts === '' ? '' : ` || ${parts}`}
  )`
}

/** A domain that is known here, between its zero bytes. */
function domainNamed(name: string): string {
  return `decode('00${Buffer.from(name).toString('hex')}00', 'hex')`
}

/** The number that is locked: the first 8 bytes. */
function lockNumber(bytes: string): string {
  return `('x' || encode(substr(${bytes}, 1, 8), 'hex'))::bit(64)::bigint`
}

/** The hash of a stream. Its first 8 bytes are its lock, its first 16 its name. */
export const STREAM_DIGEST = digest(domainNamed('outbox'), ['topic', 'key'])

/** The name of a stream, from its hash. */
export function streamOf(bytes: string): string {
  return `encode(substr(${bytes}, 1, 16), 'hex')::uuid`
}

/** The lock of a stream, from its hash or its name. */
export function streamLockOf(bytes: string): string {
  return lockNumber(bytes)
}

/** The bucket of a stream, from its hash or its name: the last 10 bits of the name. */
export function bucketOf(bytes: string): string {
  return `(get_byte(${bytes}, 14) & 3) << 8 | get_byte(${bytes}, 15)`
}

/** The group of a bucket. */
export function groupOf(bucket: string): string {
  return `${bucket} >> 4`
}

const GROUP_DOMAIN = 'outbox-group'

/** The lock of a group, where a call of `outbox_group_lock()` would be too slow. */
export function groupLockOf(group: string): string {
  return `${lockNumber(digest(domainNamed(GROUP_DOMAIN), []))} # (${group})::bigint`
}

const IMMUTABLE = 'IMMUTABLE STRICT PARALLEL SAFE'

export const LOCK_ID = `-- The number of a key, as the library computes it: the first 8 bytes of SHA-256 over schema, domain and key in UTF-8, with a
-- zero byte between them (no text of PostgreSQL holds one, so no two triples give the same bytes). For plain SQL that must take
-- part in Lockstep's locks: SELECT pg_advisory_xact_lock(lockstep.lock_id('lock', 'Transfer:42')).
CREATE FUNCTION :"schema".lock_id(domain text, key text) RETURNS bigint
LANGUAGE sql ${IMMUTABLE}
AS $$
  SELECT ${lockNumber(digest(`decode('00', 'hex') || convert_to(domain, 'UTF8') || decode('00', 'hex')`, ['key']))}
$$;
`

export const OUTBOX_STREAM = `-- A stream's name: the first 16 bytes of the SHA-256 whose first 8 are its lock.
CREATE FUNCTION :"schema".outbox_stream(topic text, key text) RETURNS uuid
LANGUAGE sql ${IMMUTABLE}
AS $$
  SELECT ${streamOf(STREAM_DIGEST)}
$$;
`

export const OUTBOX_STREAM_LOCK = `-- The number that is locked for a stream.
CREATE FUNCTION :"schema".outbox_stream_lock(stream uuid) RETURNS bigint
LANGUAGE sql ${IMMUTABLE}
AS $$ SELECT ${streamLockOf('uuid_send(stream)')} $$;
`

export const OUTBOX_BUCKET = `-- Which of the 1,024 buckets a stream is in. It is stored with every event and never changes. Every shard has the same number of buckets.
CREATE FUNCTION :"schema".outbox_bucket(stream uuid) RETURNS smallint
LANGUAGE sql ${IMMUTABLE}
AS $$ SELECT (${bucketOf('uuid_send(stream)')})::smallint $$;
`

export const OUTBOX_GROUP = `-- Which of the 64 groups a bucket is in. Reading goes by group: a search of the index costs as much for a bucket as for a group. A
-- transaction that writes to very many streams locks groups: 64 locks at most, not 1,024.
CREATE FUNCTION :"schema".outbox_group(bucket smallint) RETURNS smallint
LANGUAGE sql ${IMMUTABLE}
AS $$ SELECT ${groupOf('bucket')} $$;
`

export const OUTBOX_GROUP_LOCK = `-- The number that is locked for a group of buckets: shared by a transaction that writes to some of its streams, exclusively by one that
-- writes to very many. The planner inlines it, and computes the hash once for each plan.
CREATE FUNCTION :"schema".outbox_group_lock(bucket_group integer) RETURNS bigint
LANGUAGE sql ${IMMUTABLE}
AS $$ SELECT :"schema".lock_id('${GROUP_DOMAIN}', '') # bucket_group::bigint $$;
`

export const OUTBOX_SHARD_LOCK = `-- What belongs to a shard is done under this lock: shared by its owner, exclusively by a session that takes it over. So nothing that the
-- last owner had begun is still on its way when the next one reads. In PL/pgSQL, whose plans are kept from one call to the next.
CREATE FUNCTION :"schema".outbox_shard_lock(my_dispatcher text, my_shard smallint) RETURNS bigint
LANGUAGE plpgsql ${IMMUTABLE}
AS $$
BEGIN
  RETURN ${lockNumber(digest(domainNamed('outbox-shard'), [`my_dispatcher || ':' || my_shard`]))};
END
$$;
`
