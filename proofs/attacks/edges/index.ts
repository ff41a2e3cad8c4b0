import { boundedOpening } from './boundedOpening.ts'
import { doctor } from './doctor.ts'
import type { Edge } from './edge.ts'
import { failedConnects } from './failedConnects.ts'
import { httpBurst } from './httpBurst.ts'
import { ineffectiveLocks } from './ineffectiveLocks.ts'
import { jobQueue } from './jobQueue.ts'
import { leaseConnection } from './leaseConnection.ts'
import { orm } from './orm.ts'
import { silentPool } from './silentPool.ts'
import { starvedPool } from './starvedPool.ts'

/** Every edge, in the order in which they are attacked. */
export const edgeList: readonly Edge[] = [
  orm,
  jobQueue,
  leaseConnection,
  httpBurst,
  ineffectiveLocks,
  doctor,
  failedConnects,
  boundedOpening,
  starvedPool,
  silentPool,
]
