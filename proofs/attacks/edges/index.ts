import type { Edge } from './edge.ts'
import { httpBurst } from './httpBurst.ts'
import { jobQueue } from './jobQueue.ts'
import { leaseConnection } from './leaseConnection.ts'

/** Every edge, in the order in which they are attacked. */
export const edgeList: readonly Edge[] = [jobQueue, leaseConnection, httpBurst]
