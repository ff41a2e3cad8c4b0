import type { Edge } from './edge.ts'
import { orm } from './orm.ts'

/** Every edge, in the order in which they are attacked. */
export const edgeList: readonly Edge[] = [orm]
