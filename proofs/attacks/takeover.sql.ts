/** The shards that a process has. */
export const SHARDS_OF = `
  SELECT split_part(name, ':', 4)::int AS shard FROM lockstep.leases
   WHERE name LIKE 'Outbox:%:shard:%' AND token IS NOT NULL AND expires_at > clock_timestamp() AND holder LIKE '%:' || $1`

/** How many shards of a process were taken away from it. */
export const TAKEN_AWAY_FROM = `
  SELECT count(*)::int AS taken FROM lockstep.lease_history WHERE name LIKE 'Outbox:%:shard:%' AND ending = 'forced' AND holder LIKE '%:' || $1`
