import { startCluster } from '../../../tools/server/cluster.ts'
import { CLUSTER_KINDS, type ClusterKind, replacePrimary } from '../../faults/cluster.ts'
import type { Servers } from './servers.ts'

/** Three members under Patroni, which decides who is promoted. Clients come through HAProxy. */
export async function startClusterServers(): Promise<Servers> {
  const cluster = await startCluster({ synchronous: true })
  return {
    url: cluster.url(),
    failOver(kind) {
      if (!CLUSTER_KINDS.includes(kind as ClusterKind)) throw new Error(`no ${kind} in a cluster`)
      return replacePrimary(cluster, kind as ClusterKind)
    },
    rewound: () => cluster.rewound(),
    close: () => cluster.stop(),
  }
}
