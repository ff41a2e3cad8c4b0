import type { Attack } from './attack.ts'

import { brokerDown } from './brokerDown.ts'
import { bulk } from './bulk.ts'
import { cancel } from './cancel.ts'
import { citus } from './citus.ts'
import { commit } from './commit.ts'
import { consoleAttack } from './console.ts'
import { consumers } from './consumers.ts'
import { crash } from './crash.ts'
import { drain } from './drain.ts'
import { edges } from './edges.ts'
import { failover } from './failover.ts'
import { guard } from './guard.ts'
import { http } from './http.ts'
import { importAttack } from './import.ts'
import { intruder } from './intruder.ts'
import { kafkaTransactions } from './kafkaTransactions.ts'
import { keys } from './keys.ts'
import { leftovers } from './leftovers.ts'
import { openWriter } from './openWriter.ts'
import { order } from './order.ts'
import { orm } from './orm.ts'
import { restart } from './restart.ts'
import { restore } from './restore.ts'
import { rollout } from './rollout.ts'
import { combine, leases, once, transfers, wallet } from './scenarios.ts'
import { showAttack } from './show.ts'
import { silence } from './silence.ts'
import { split } from './split.ts'
import { takeover } from './takeover.ts'
import { twoDatabases } from './twoDatabases.ts'
import { upgrade } from './upgrade.ts'
import { visibility } from './visibility.ts'
import { zombie } from './zombie.ts'
import { zombieSink } from './zombieSink.ts'

/** Those on the outbox and its sinks. */
export const deliveries: readonly Attack[] = [
  order,
  crash,
  openWriter,
  drain,
  split,
  bulk,
  restore,
  failover,
  zombieSink,
  takeover,
  brokerDown,
  kafkaTransactions,
  importAttack,
  twoDatabases,
  consumers,
]

/** Every attack by its name: `npm run attack -- NAME`. */
export const attacks: Readonly<Record<string, Attack>> = {
  wallet,
  keys,
  leftovers,
  commit,
  rollout,
  guard,
  cancel,
  visibility,
  transfers,
  once,
  combine,
  leases,
  zombie,
  silence,
  restart,
  edges,
  orm,
  http,
  intruder,
  order,
  crash,
  'open-writer': openWriter,
  drain,
  split,
  bulk,
  restore,
  failover,
  'zombie-sink': zombieSink,
  takeover,
  'broker-down': brokerDown,
  'kafka-transactions': kafkaTransactions,
  import: importAttack,
  'two-databases': twoDatabases,
  consumers,
  upgrade,
  citus,
  console: consoleAttack,
  show: showAttack,
}
