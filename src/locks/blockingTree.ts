/** What a session waits for. */
export interface Wanted {
  /** The number of the lock; undefined where it is not an advisory lock of this database. */
  readonly id: bigint | undefined
  /** Undefined where the name is not known. */
  readonly key: string | undefined
  /** `advisory`, or the kind of lock as pg_locks names it: `transactionid` is a row that another transaction has changed. */
  readonly kind: string
}

/** One session as the server shows it. */
export interface Backend {
  /** 0: a prepared transaction, which has no session. */
  readonly pid: number
  /** Undefined if the role has no right to see it, or if none was set. */
  readonly application: string | undefined
  /** As pg_stat_activity says; `prepared` for a prepared transaction. */
  readonly state: string | undefined
  /**
   * How long its transaction has been open. PostgreSQL keeps no time of the grant: it has held its locks for this long at most.
   * Undefined if it is in no transaction, or if the role has no right to see it.
   */
  readonly heldForMs: number | undefined
  /** The statement that it runs, or ran last. Only where it was asked for. */
  readonly statement?: string | undefined
}

/** One session in the blocking tree, with those who wait because of it. */
export interface BlockingNode extends Backend {
  /** What it waits for itself; undefined for a root, unless it stands in a circle. */
  readonly waitsFor: Wanted | undefined
  readonly blocks: readonly BlockingNode[]
  /** It stands in the tree once more: there it has what it blocks. So it is with several blockers, and in a circle. */
  readonly repeated: boolean
}

/** One that holds a lock, or waits for it. */
export interface Claim extends Backend {
  readonly mode: 'exclusive' | 'shared'
}

/** One lock, its waiters in the order of the queue. */
export interface ContestedLock {
  readonly id: bigint
  readonly key: string | undefined
  readonly holders: readonly Claim[]
  readonly waiters: readonly Claim[]
}

/** `waiter` waits because of `blocker`. */
export interface Edge {
  readonly waiter: Backend
  readonly blocker: Backend
  readonly wanted: Wanted
}

/**
 * Who waits for whom at these locks. A waiter is blocked by the holders that it does not go together with; where it goes with
 * all of them, by the nearest one before it in the queue that it does not go with: no session overtakes at the server.
 */
export function edgesOf(locks: readonly ContestedLock[]): Edge[] {
  return locks.flatMap(({ id, key, holders, waiters }) => {
    const wanted: Wanted = { id, key, kind: 'advisory' }
    return waiters.flatMap((waiter, place) => {
      const holding = holders.filter((holder) => conflict(waiter, holder))
      const blockers = holding.length > 0 ? holding : nearestAhead(waiters, place)
      return blockers.map((blocker) => ({ waiter, blocker, wanted }))
    })
  })
}

function nearestAhead(waiters: readonly Claim[], place: number): Claim[] {
  const waiter = waiters[place] as Claim
  const ahead = waiters.slice(0, place).findLast((other) => conflict(waiter, other))
  return ahead === undefined ? [] : [ahead]
}

function conflict(one: Claim, other: Claim): boolean {
  return one.pid !== other.pid && (one.mode === 'exclusive' || other.mode === 'exclusive')
}

/**
 * Draws the edges as trees: at each root one that others wait for and that does not wait. In a circle, which the server breaks
 * up after its `deadlock_timeout`, the one with the lowest pid takes the root. Each session has its followers once.
 */
export function blockingTree(edges: readonly Edge[]): BlockingNode[] {
  const backends = new Map<number, Backend>()
  const followers = new Map<number, Map<number, Edge>>()
  const firstBlocker = new Map<number, Edge>()
  for (const edge of edges) {
    const { waiter, blocker } = edge
    for (const each of [blocker, waiter]) if (!backends.has(each.pid)) backends.set(each.pid, each)
    if (!firstBlocker.has(waiter.pid)) firstBlocker.set(waiter.pid, edge)
    const own = followers.get(blocker.pid) ?? new Map<number, Edge>()
    if (!own.has(waiter.pid)) own.set(waiter.pid, edge)
    followers.set(blocker.pid, own)
  }
  const drawn = new Set<number>()
  const draw = (pid: number, waitsFor: Wanted | undefined): BlockingNode => {
    const { application, state, heldForMs, statement } = backends.get(pid) as Backend
    const repeated = drawn.has(pid)
    drawn.add(pid)
    const own = repeated ? [] : [...(followers.get(pid)?.values() ?? [])]
    const blocks = own.map((edge) => draw(edge.waiter.pid, edge.wanted))
    const known = statement === undefined ? {} : { statement }
    return { pid, application, state, heldForMs, ...known, waitsFor, blocks, repeated }
  }
  const roots: BlockingNode[] = []
  for (const pid of followers.keys()) if (!firstBlocker.has(pid)) roots.push(draw(pid, undefined))
  // The sessions that are left are in a cycle, or behind one.
  for (const pid of followers.keys()) {
    if (drawn.has(pid)) continue
    const root = lowestOfCircle(pid, firstBlocker)
    roots.push(draw(root, firstBlocker.get(root)?.wanted))
  }
  return roots
}

/** Goes from blocker to blocker until it comes round. */
function lowestOfCircle(start: number, firstBlocker: ReadonlyMap<number, Edge>): number {
  const way: number[] = []
  let pid = start
  while (!way.includes(pid)) {
    way.push(pid)
    pid = firstBlocker.get(pid)?.blocker.pid ?? pid
  }
  return Math.min(...way.slice(way.indexOf(pid)))
}
