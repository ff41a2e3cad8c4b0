-- compatible-from: 1
-- These functions forbid sequential scans, so that a table that was just filled is read by its index. Before PostgreSQL 18 that is done by
-- adding 1e10 to the cost of a plan that cannot do without one, be it over three rows; and what costs that much is compiled first, where
-- the server has LLVM, as Debian's has. A batch is read in less time than that takes.
-- Measured on PostgreSQL 15 of Debian, one dispatcher: COMMIT to sink 1,906 ms before, 5.6 ms after; a backlog 452 to 874 events a second
-- before, 26,000 to 34,000 after; processor time of the database 650 us for each event before, 10 after.
ALTER FUNCTION :"schema".outbox_last SET jit = off;
ALTER FUNCTION :"schema".outbox_append SET jit = off;
ALTER FUNCTION :"schema".outbox_window_parts SET jit = off;
ALTER FUNCTION :"schema".outbox_advance SET jit = off;
ALTER FUNCTION :"schema".outbox_fetch SET jit = off;
ALTER FUNCTION :"schema".inbox_accept SET jit = off;
ALTER FUNCTION :"schema".inbox_accept_runs SET jit = off;
ALTER FUNCTION :"schema".outbox_parked_due SET jit = off;
ALTER FUNCTION :"schema".outbox_parked_tried SET jit = off;

-- Others do not forbid scans and are cheap, as the planner sees it, only while their tables are small, or while it knows how small they
-- are: of a table that was never analyzed it expects pages full of rows. None of them runs for as long as compiling takes.
ALTER FUNCTION :"schema".ensure_incarnation SET jit = off;
ALTER FUNCTION :"schema".lease_release SET jit = off;
ALTER FUNCTION :"schema".lease_renew SET jit = off;
ALTER FUNCTION :"schema".lease_look SET jit = off;
ALTER FUNCTION :"schema".lease_wake SET jit = off;
ALTER FUNCTION :"schema".outbox_append_many SET jit = off;
ALTER FUNCTION :"schema".outbox_here SET jit = off;
ALTER FUNCTION :"schema".outbox_take SET jit = off;
ALTER FUNCTION :"schema".outbox_owns SET jit = off;
ALTER FUNCTION :"schema".outbox_register SET jit = off;
ALTER FUNCTION :"schema".outbox_prepare_segment SET jit = off;
ALTER FUNCTION :"schema".outbox_rotate SET jit = off;
ALTER FUNCTION :"schema".outbox_seal SET jit = off;
ALTER FUNCTION :"schema".outbox_passed SET jit = off;
ALTER FUNCTION :"schema".outbox_keep SET jit = off;
ALTER FUNCTION :"schema".outbox_drop SET jit = off;
ALTER FUNCTION :"schema".outbox_operate SET jit = off;
ALTER FUNCTION :"schema".outbox_remove SET jit = off;
ALTER FUNCTION :"schema".outbox_erase SET jit = off;
ALTER FUNCTION :"schema".outbox_rebase SET jit = off;
ALTER FUNCTION :"schema".outbox_forget_xids SET jit = off;
ALTER FUNCTION :"schema".outbox_unpark SET jit = off;
ALTER FUNCTION :"schema".inbox_start SET jit = off;
ALTER FUNCTION :"schema".inbox_position SET jit = off;
