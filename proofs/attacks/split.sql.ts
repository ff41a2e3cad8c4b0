/** As by a process that dies between announcing a split and making it. */
export const BEGIN_ONLY = `SELECT lockstep.outbox_split_begin('default', 512, $1)`
/** How many shards each dispatcher has, by its holder. */
export const SHARES = `
  SELECT holder, count(*)::int AS shards FROM lockstep.leases
   WHERE name LIKE 'Outbox:default:shard:%' AND token IS NOT NULL AND expires_at > clock_timestamp() GROUP BY holder`
/** How many dispatchers share the shards. */
export const MEMBERS = `
  SELECT count(*)::int AS members FROM lockstep.leases
   WHERE name LIKE 'Outbox:default:member:%' AND token IS NOT NULL AND expires_at > clock_timestamp()`
/** The control: the number of shards is changed, and the cursors stay with their numbers. */
export const CHANGE_NUMBER = `UPDATE lockstep.outbox_dispatchers SET shards = shards * 2 WHERE name = 'control'`
/** Another process has one of its two shards. */
export const HOLD_FIRST_SHARD = `
  UPDATE lockstep.leases SET token = gen_random_uuid(), expires_at = clock_timestamp() + interval '1 hour' WHERE name = 'Outbox:control:shard:0'`
export const RELEASE_FIRST_SHARD = `UPDATE lockstep.leases SET token = NULL WHERE name = 'Outbox:control:shard:0'`
