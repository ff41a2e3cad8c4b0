import { setTimeout as sleep } from 'node:timers/promises'
import type { Cluster } from '../../tools/server/cluster.ts'
import { signal } from '../../tools/server/processes.ts'
import { type Fault, inFlight } from './fault.ts'

/**
 * How the primary of a cluster is replaced.
 * - crash: all its processes are killed at once.
 * - switchover: Patroni is asked for another one.
 * - frozen: it is stopped with SIGSTOP, and continues when another server is the primary.
 * - etcd: it is cut off from etcd and has to give up.
 * - standby: the synchronous standby crashes first, and the primary as soon as it has another one.
 */
export const CLUSTER_KINDS = ['crash', 'switchover', 'frozen', 'etcd', 'standby'] as const
export type ClusterKind = (typeof CLUSTER_KINDS)[number]

/** For so long the standbys get nothing before the primary is struck: with asynchronous replication these commits are lost. */
const HELD_BACK_MS = 400

/** Comes back when the cluster takes commits again: with the moments of the fault and of the promotion. */
export async function replacePrimary(
  cluster: Cluster,
  kind: ClusterKind,
): Promise<{ readonly struckAt: number; readonly promotedAt: number }> {
  const old = await cluster.healthy()
  if (kind === 'standby') {
    await cluster.kill(await cluster.anyStandby())
    // With `synchronous_mode_strict` every COMMIT waits meanwhile.
    await cluster.promoted(undefined)
  }
  const struckAt = performance.now()
  const heal = await strike(cluster, kind, old)
  try {
    await cluster.led(old)
    const promotedAt = performance.now()
    await cluster.promoted(old)
    return { struckAt, promotedAt }
  } finally {
    await heal?.()
  }
}

/** What it answers heals it. */
async function strike(cluster: Cluster, kind: ClusterKind, old: string): Promise<(() => Promise<void>) | undefined> {
  if (kind === 'frozen') {
    const pids = await cluster.processes(old)
    for (const pid of pids) signal(pid, 'SIGSTOP')
    return async () => {
      for (const pid of pids) signal(pid, 'SIGCONT')
    }
  }
  if (kind === 'etcd') {
    const relay = cluster.etcdOf(old)
    await relay.stop()
    return () => relay.start()
  }
  if (kind === 'switchover') await cluster.switchover()
  else await cluster.kill(old)
  return undefined
}

const ABOUT: Readonly<Record<ClusterKind, string>> = {
  crash: 'the primary of the cluster is killed: Patroni promotes a standby',
  switchover: 'Patroni makes another member the primary',
  frozen: 'the primary is stopped (SIGSTOP), and goes on when another member is the primary',
  etcd: 'the primary is cut off from etcd and gives up',
  standby: 'a standby that commits wait for is killed, and then the primary',
}

export const clusterFaults: readonly Fault[] = CLUSTER_KINDS.map((kind) => ({
  name: `cluster-${kind}`,
  rare: true,
  replacesPrimary: true,
  about: ABOUT[kind],
  impossible: ({ cluster }) => (cluster === undefined ? 'there is no cluster: see --cluster' : undefined),
  async strike({ cluster, workers }) {
    if (cluster === undefined) throw new Error('there is no cluster')
    await cluster.healthy()
    const senders = cluster.synchronous ? [] : await cluster.senders()
    for (const pid of senders) signal(pid, 'SIGSTOP')
    if (senders.length > 0) await sleep(HELD_BACK_MS)
    const struck = { on: 'database', operations: inFlight(workers) }
    // A switchover waits for the standbys, and a primary that gives up needs its senders.
    if (kind !== 'crash' && kind !== 'frozen') for (const pid of senders) signal(pid, 'SIGCONT')
    await replacePrimary(cluster, kind)
    await cluster.healthy()
    return struck
  },
}))
