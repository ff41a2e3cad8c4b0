import { clusterFaults } from './cluster.ts'
import type { Fault } from './fault.ts'
import { cutInCommit, halfOpen, slow } from './network.ts'
import { clock, kill, pause, statementTimeout } from './processes.ts'
import { cancel, pooler, restart, slowCommit, snapshot, terminate } from './server.ts'

/** All kinds, as `--fault` names them. */
export const faults: readonly Fault[] = [
  kill,
  pause,
  terminate,
  cancel,
  cutInCommit,
  halfOpen,
  slow,
  statementTimeout,
  pooler,
  snapshot,
  clock,
  restart,
  slowCommit,
  ...clusterFaults,
]
