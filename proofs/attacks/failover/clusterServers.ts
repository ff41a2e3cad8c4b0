import { type Cluster, startCluster } from '../../../tools/server/cluster.ts'
import { signal } from '../../../tools/server/processes.ts'
import type { Kind, Servers } from './servers.ts'

/**
 * How the primary of a cluster is replaced. `etcd`: it is cut off from etcd and has to give up. `standby`: the synchronous standby crashes
 * first, and the primary as soon as it has another one.
 */
export const CLUSTER_KINDS: readonly Kind[] = ['crash', 'switchover', 'frozen', 'etcd', 'standby']

/** Three members under Patroni, which decides who is promoted. Clients come through HAProxy. */
export async function startClusterServers(): Promise<Servers> {
  const cluster = await startCluster({ synchronous: true })
  return {
    url: cluster.url(),
    async failOver(kind) {
      const old = await cluster.healthy()
      if (kind === 'standby') {
        const standby = await cluster.synchronousStandby()
        await cluster.kill(standby)
        // With `synchronous_mode_strict` every COMMIT waits meanwhile.
        await cluster.promoted(undefined)
      }
      const struckAt = performance.now()
      return { struckAt, promotedAt: await strike(cluster, kind, old) }
    },
    rewound: () => cluster.rewound(),
    close: () => cluster.stop(),
  }
}

/** Comes back when the cluster is whole enough for the load: with the moment at which another member led. */
async function strike(cluster: Cluster, kind: Kind, old: string): Promise<number> {
  let heal: (() => Promise<void>) | undefined
  if (kind === 'crash' || kind === 'standby') await cluster.kill(old)
  else if (kind === 'switchover') await cluster.switchover()
  else if (kind === 'frozen') {
    const pids = await cluster.processes(old)
    for (const pid of pids) signal(pid, 'SIGSTOP')
    heal = async () => {
      for (const pid of pids) signal(pid, 'SIGCONT')
    }
  } else if (kind === 'etcd') {
    const relay = cluster.etcdOf(old)
    await relay.stop()
    heal = () => relay.start()
  } else throw new Error(`no ${kind} in a cluster`)
  await cluster.led(old)
  const promotedAt = performance.now()
  await cluster.promoted(old)
  await heal?.()
  return promotedAt
}
