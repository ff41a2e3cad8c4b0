/**
 * The race lab: prove it on your own machine.
 *
 * **What it shows.** The failures that Lockstep prevents are silent. So each scenario is played twice by the same workload: as a
 * known recipe does it, and as Lockstep does it. A run shows something only if the recipe is caught; that ours is not caught by the
 * same checkers, under the same faults, is then worth something.
 *
 * **A run** is rounds of some seconds. In a round four processes (`worker.ts`) do operations of all scenarios at once, over two drivers
 * and three ways to the server: straight, through a proxy of ours, and with both drivers through PgBouncer in transaction mode. The coordinator (`round.ts`)
 * strikes them with faults and is the world outside: an exchange, a store, a broker. Then nothing goes wrong any more; all operations
 * must come to their end; everything is closed; and the checkers read the history. First come naive rounds, until every recipe was
 * caught or their share of the time is over, then ours. Every round has keys of its own.
 *
 * **The history** (`history.ts`) is all that checkers see: what workers asked, were granted, read, wrote and received as answers, what reached the
 * world outside, what stands in the database when all is quiet. Its times are of the monotonic clock that all processes of the
 * machine share. An entry leaves its process before the operation continues: a kill takes the end of a story with it, never the
 * beginning. Of an operation without an end, and of one that got `CommitOutcomeUnknownError`, checkers believe either; one that
 * failed must have left nothing.
 *
 * **Who holds** something says so at moments at which it was certain: it takes the time first and asks the lease then. A process that
 * is stopped says nothing, so two claims that overlap are two holders, and no accident of measuring.
 *
 * **Faults** (`faults/`) heal by themselves. They are drawn from a shuffled bag, so that a short run has all kinds; the one that stops a
 * process picks the one that holds most. A fault counts with the operations that were in flight where it struck.
 *
 * **One kit.** Attacks (`attacks/`) and the load on the desk use the same faults, checkers and random numbers. An attack that a scenario
 * covers is that scenario, with more callers and for longer (`attacks/scenarios.ts`). The others need what the lab has not: a server of
 * their own, interleavings that chance does not bring about, volume, brokers, frameworks.
 *
 * **A cluster** (`--cluster`) is three servers under Patroni behind HAProxy. One fault of a round replaces the primary. With asynchronous replication
 * the standbys are held back first: violations that lost commits explain are counted as losses, and exclusion, fences and totals must hold all the same.
 *
 * **The seed** decides what every lane of every process does, and when which fault strikes whom. What PostgreSQL and the operating
 * system make of it is theirs: the same seed is the same schedule, not the same run. `seeds/` holds those that have found something,
 * and the tests play them again.
 *
 * **What it touches**: the schema `lockstep_prove`, which it makes and drops, and advisory locks with keys of its own. The server is
 * crashed and its settings are changed only where it was started for the purpose.
 */
export { faultNames, missingForCluster, prove, type Proved, scenarioNames, type Wanted } from './prove.ts'
