/** In one transaction, whose notifications PostgreSQL sends at COMMIT. */
export const ENQUEUE_AND_RING = `SELECT lockstep.enqueue('trades', $1, $2::json), lockstep.outbox_ring()`

/** The same without a ring. */
export const ENQUEUE = `SELECT lockstep.enqueue('trades', $1, $2::json)`

/** As a dispatcher says that it listens, and that it does not. */
const LISTENER = '7d9f6b1e-3a55-4a53-9d0c-2f1f0c7c6f00'
export const LISTEN_FOR = {
  'an hour': `SELECT lockstep.outbox_listen('${LISTENER}', 3600000)`,
  nothing: `SELECT lockstep.outbox_listen('${LISTENER}', NULL)`,
} as const
