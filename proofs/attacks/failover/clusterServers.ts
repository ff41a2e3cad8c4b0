import { type Cluster, startCluster } from '../../../tools/server/cluster.ts'
import { signal } from '../../../tools/server/processes.ts'
import type { Kind, Servers } from './servers.ts'

/** How the primary of a cluster is replaced. `etcd`: it is cut off from etcd and has to give up. */
export const CLUSTER_KINDS: readonly Kind[] = ['crash', 'switchover', 'frozen', 'etcd']

/** Three members under Patroni, which decides who is promoted. Clients come through HAProxy. */
export async function startClusterServers(): Promise<Servers> {
  const cluster = await startCluster({ synchronous: true })
  return {
    url: cluster.url(),
    countedFrom: 'fault',
    async failOver(kind) {
      const old = await cluster.healthy()
      const startedAt = performance.now()
      await strike(cluster, kind, old)
      return startedAt
    },
    close: () => cluster.stop(),
  }
}

async function strike(cluster: Cluster, kind: Kind, old: string): Promise<void> {
  if (kind === 'crash') await cluster.kill(old)
  else if (kind === 'switchover') await cluster.switchover()
  else if (kind === 'frozen') {
    const pids = await cluster.processes(old)
    for (const pid of pids) signal(pid, 'SIGSTOP')
    await cluster.promoted(old)
    for (const pid of pids) signal(pid, 'SIGCONT')
    return
  } else if (kind === 'etcd') {
    const relay = cluster.etcdOf(old)
    await relay.stop()
    await cluster.promoted(old)
    await relay.start()
    return
  } else throw new Error(`no ${kind} in a cluster`)
  await cluster.promoted(old)
}
