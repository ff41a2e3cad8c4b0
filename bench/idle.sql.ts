/** In one transaction, which PostgreSQL tells at its COMMIT. */
export const ENQUEUE_AND_RING = `SELECT lockstep.enqueue('trades', $1, $2::json), lockstep.outbox_ring()`
