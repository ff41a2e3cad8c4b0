/** The slots of `outbox_events`, each a table: see sql/tables/0005_outbox.sql. */
export const SLOTS: readonly number[] = [0, 1, 2, 3, 4, 5, 6, 7]
