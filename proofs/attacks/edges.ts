import { attack } from './attack.ts'
import { attackAll, FULL, SMALL } from './edges/attackAll.ts'
import { edgeList } from './edges/index.ts'

/**
 * The edges: an ORM that sends COMMIT, a job queue shared by requests, a starved pool, connects that fail, a silent network, a lock that
 * does nothing. At each one Lockstep keeps its promise or refuses; a naive control beside it shows that the fault was there.
 */
export const edges = attack({
  name: 'edges',
  about: 'ORMs, job queues, starved pools, silent networks and engines without locks: each promise is kept or refused',
  full: FULL,
  small: SMALL,
  run: (size, reportProgress) => attackAll('edge', edgeList, size, reportProgress),
})
