import type { Bench } from './bench.ts'
import { consumers } from './consumers.ts'
import { cost } from './cost.ts'
import { growth } from './growth.ts'
import { guard } from './guard.ts'
import { hotKey } from './hotKey.ts'
import { idle } from './idle.ts'
import { leases } from './leases.ts'
import { locks } from './locks.ts'
import { observe } from './observe.ts'
import { orm } from './orm.ts'
import { outbox } from './outbox.ts'
import { outboxHorizon } from './outboxHorizon.ts'
import { outboxLatency } from './outboxLatency.ts'
import { outboxScale } from './outboxScale.ts'
import { outboxTopics } from './outboxTopics.ts'
import { processes } from './processes.ts'
import { sinks } from './sinks.ts'

/** One a claim, in the order in which a run of all takes them. */
export const benches: Readonly<Record<string, Bench>> = {
  locks,
  guard,
  orm,
  observe,
  'hot-key': hotKey,
  leases,
  outbox,
  'outbox-latency': outboxLatency,
  idle,
  'outbox-horizon': outboxHorizon,
  'outbox-scale': outboxScale,
  'outbox-topics': outboxTopics,
  growth,
  sinks,
  consumers,
  processes,
  cost,
}
