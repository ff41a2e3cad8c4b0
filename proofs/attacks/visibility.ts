import { type BlockingNode, key, type Key, type LockListing, Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { goal, type Goal } from '../../tools/judge/report.ts'
import { waitFor } from '../checkers/leftovers.ts'
import { strikeSessions } from '../faults/sessions.ts'
import { type Client, DRIVERS, type Lab } from './lab.ts'
import { attackInLab } from './attack.ts'
import {
  BEGIN,
  BLOCKERS,
  CHANGE_ROW,
  EVERY_LOCK,
  OLD_NAMES,
  ROWS,
  SO_MANY_NAMES,
  SO_MANY_WAIT,
  takeLock,
  timed,
  WAITS_FOR_ROW,
} from './visibility.sql.ts'

interface Size {
  readonly holders: number
  readonly waiters: number
  /** How often the query is timed; 0: a small machine's time says nothing. */
  readonly timings: number
}

/** A session of its own, as psql has, with its transaction open. */
interface Session {
  readonly client: pg.Client
  readonly pid: number
}

/** Everything that is held and waited for. */
interface Crowd {
  readonly keys: readonly Key[]
  /** Root, middle and last of a chain by advisory locks alone, and of one whose first link is a row. */
  readonly chain: readonly number[]
  readonly rowChain: readonly number[]
}

/**
 * Fifty holders and two hundred waiters, each with a connection of its own, some shared, two of them chains of three. The list must
 * say of every one what pg_locks says, by name, and take the database no more than 50 ms.
 */
export const visibility = attackInLab<Size>({
  name: 'visibility',
  about: 'many holders and waiters: the list says what pg_locks says, by name, and who blocks whom',
  full: { holders: 50, waiters: 200, timings: 20 },
  small: { holders: 10, waiters: 30, timings: 0 },
  settings: { max_connections: '400', deadlock_timeout: '1h' },
  async run(lab, size, reportProgress) {
    let letGo = (): void => undefined
    const released = new Promise<void>((resolve) => (letGo = resolve))
    try {
      await lab.admin.query(ROWS)
      await lab.admin.query(OLD_NAMES)
      reportProgress(`visibility: ${size.holders} holders, ${size.waiters} waiters`)
      const clients = DRIVERS.map((driver) => lab.client(driver, lab.url('direct'), { poolSize: size.holders }))
      const crowd = await gather(lab, clients, size, released)
      const goals: Goal[] = []
      const results = []
      for (const [index, driver] of DRIVERS.entries()) {
        const { lockstep } = clients[index] as Client
        const listing = await lockstep.locks.list()
        results.push({ driver, ...count(listing) })
        const truth = await lab.admin.query<Row>(EVERY_LOCK)
        goals.push(
          goal(`${driver}: rows that differ from pg_locks`, differences(rowsOf(listing), truth.rows), '=', 0),
          goal(`${driver}: keys without a name`, nameless(listing, crowd.keys), '=', 0),
          goal(
            `${driver}: waiters whose blocker is not one of the server’s`,
            await wronglyBlocked(lab, listing),
            '=',
            0,
          ),
          goal(`${driver}: chains of three`, chainsFound(listing, [crowd.chain, crowd.rowChain]), '=', 2),
        )
      }
      goals.push(
        goal('rows in pg_locks', (await lab.admin.query(EVERY_LOCK)).rows.length, '>=', size.holders + size.waiters),
      )
      if (size.timings === 0) return { results, goals }
      const timings: number[] = []
      const statement = await statementOfList(lab)
      for (let n = 0; n < size.timings; n++) timings.push(await timeOfList(lab, statement))
      const [median, worst] = [timings.toSorted((a, b) => a - b)[timings.length >> 1] ?? Infinity, Math.max(...timings)]
      // The worst is shown and not judged. On 2 cores at a load of 10 it was 133 ms, of which the query ran 9 and the backend
      // waited for a core for the rest; in 120 runs there the query never ran for more than 11.
      goals.push(goal('database time of the list, median, ms', median, '<=', 50))
      for (const row of results) Object.assign(row, { 'list ms, median': median, 'list ms, worst': worst })
      return { results, goals }
    } finally {
      letGo()
      // Whatever they wait for.
      await strikeSessions(lab.admin, 'terminate', { application: 'crowd' })
    }
  },
})

/** Holders through Lockstep on both drivers; waiters as plain SQL, whose places in the queue do not change from slice to slice. */
async function gather(lab: Lab, clients: readonly Client[], size: Size, released: Promise<void>): Promise<Crowd> {
  const keys = Array.from({ length: size.holders }, (_, number) => key`Account:${number}`)
  const pids = await Promise.all(
    keys.map((lock, number) => hold(clients[number % clients.length] as Client, lock, number % 5 === 4, released)),
  )
  let waiting = 0
  const stand = async (session: Session, lock: Key, shared = false): Promise<number> => {
    send(session, takeLock(shared), [lock])
    await waitFor(lab.admin, SO_MANY_WAIT, [++waiting])
    return session.pid
  }
  // A chain by advisory locks: the first holder, one that holds a key of its own and waits for the first, one behind it.
  const [first] = keys as [Key]
  const own = key`Chain:${'advisory'}`
  const middle = await openSession(lab)
  await middle.client.query(takeLock(false), [own])
  const chain = [pids[0] ?? 0, await stand(middle, first), await stand(await openSession(lab), own)]
  // A chain through a row: a session that holds no lock of the list has changed it.
  const ownToo = key`Chain:${'row'}`
  const [writer, stuck] = [await openSession(lab), await openSession(lab)]
  await writer.client.query(CHANGE_ROW)
  await stuck.client.query(takeLock(false), [ownToo])
  send(stuck, CHANGE_ROW)
  await waitFor(lab.admin, WAITS_FOR_ROW)
  const rowChain = [writer.pid, stuck.pid, await stand(await openSession(lab), ownToo)]
  // A Lockstep that asks for these two registers their names.
  for (const lock of [own, ownToo]) {
    await clients[0]?.lockstep.transaction({ lock, waitMs: 0 }, () => Promise.resolve()).catch(() => undefined)
  }
  while (waiting < size.waiters) {
    // The first of each key is exclusive: a shared one would go in with a shared holder.
    const shared = waiting > size.holders && waiting % 7 === 0
    await stand(await openSession(lab), keys[waiting % Math.ceil(size.holders / 2)] as Key, shared)
  }
  await waitFor(lab.admin, SO_MANY_NAMES, [keys.length + 2])
  return { keys: [...keys, own, ownToo], chain, rowChain }
}

/** Holds the lock until it is released; gives the holder's pid as soon as it does. */
function hold(client: Client, lock: Key, shared: boolean, released: Promise<void>): Promise<number> {
  return new Promise((resolve, reject) => {
    client.lockstep
      .transaction(shared ? { lockShared: lock } : { lock }, async (tx) => {
        const { rows } = await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
        resolve(rows[0]?.pid ?? 0)
        await released
      })
      .catch(reject)
  })
}

async function openSession(lab: Lab): Promise<Session> {
  const client = new pg.Client({ connectionString: lab.url('direct'), application_name: 'crowd' })
  // They end by being ended.
  client.on('error', () => undefined)
  await client.connect()
  await client.query(BEGIN)
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
  return { client, pid: rows[0]?.pid ?? 0 }
}

/** A statement whose answer is not awaited: it waits until the session is ended. */
function send({ client }: Session, text: string, values: unknown[] = []): void {
  client.query(text, values).catch(() => undefined)
}

interface Row {
  readonly id: string
  readonly pid: number
  readonly granted: boolean
  readonly mode: string
}

/** The list as pg_locks would say it: by id, holders before waiters, waiters in their order. */
function rowsOf({ locks }: LockListing): Row[] {
  return locks.flatMap(({ id, holders, waiters }) => [
    ...holders.map(({ pid, mode }) => ({ id: String(id), pid, granted: true, mode })),
    ...waiters.map(({ pid, mode }) => ({ id: String(id), pid, granted: false, mode })),
  ])
}

/** Rows of the one that are not at the same place of the same lock in the other. */
function differences(list: readonly Row[], truth: readonly Row[]): number {
  const byLock = (rows: readonly Row[]): Map<string, string[]> => {
    const found = new Map<string, string[]>()
    for (const { id, pid, granted, mode } of rows) {
      found.set(id, [...(found.get(id) ?? []), `${pid} ${granted} ${mode}`])
    }
    return found
  }
  const [mine, theirs] = [byLock(list), byLock(truth)]
  let different = 0
  for (const id of new Set([...mine.keys(), ...theirs.keys()])) {
    const [one, other] = [mine.get(id) ?? [], theirs.get(id) ?? []]
    for (let place = 0; place < Math.max(one.length, other.length); place++)
      if (one[place] !== other[place]) different++
  }
  return different
}

function nameless({ locks }: LockListing, keys: readonly Key[]): number {
  const named = new Set(locks.map((lock) => lock.key))
  return keys.filter((each) => !named.has(each)).length + locks.filter((lock) => lock.key === undefined).length
}

/** Every edge of the tree must be one that the server knows, too. */
async function wronglyBlocked(lab: Lab, { tree }: LockListing): Promise<number> {
  const { rows } = await lab.admin.query<{ pid: number; blockers: number[] }>(BLOCKERS)
  const blockers = new Map(rows.map((row) => [row.pid, new Set(row.blockers)]))
  const drawn = new Set<number>()
  let wrong = 0
  const visit = (node: BlockingNode): void => {
    for (const below of node.blocks) {
      drawn.add(below.pid)
      if (below.waitsFor?.kind === 'advisory' && blockers.get(below.pid)?.has(node.pid) !== true) wrong++
      visit(below)
    }
  }
  tree.forEach(visit)
  return wrong + [...blockers.keys()].filter((pid) => !drawn.has(pid)).length
}

function chainsFound({ tree }: LockListing, chains: readonly (readonly number[])[]): number {
  const leads = (nodes: readonly BlockingNode[], [pid, ...rest]: readonly number[]): boolean => {
    const node = nodes.find((each) => each.pid === pid)
    return node !== undefined && (rest.length === 0 || leads(node.blocks, rest))
  }
  return chains.filter((chain) => leads(tree, chain)).length
}

function count({ locks, tree }: LockListing): Record<string, number> {
  const sum = (counted: (lock: LockListing['locks'][number]) => number): number =>
    locks.reduce((total, lock) => total + counted(lock), 0)
  return {
    locks: locks.length,
    holders: sum(({ holders }) => holders.length),
    waiters: sum(({ waiters }) => waiters.length),
    'longest queue': Math.max(0, ...locks.map(({ waiters }) => waiters.length)),
    'blocking trees': tree.length,
  }
}

/** Planning and running, by the server's own clock, in a session that has never run it. */
async function timeOfList(lab: Lab, statement: string): Promise<number> {
  const session = new pg.Client({ connectionString: lab.url('direct') })
  await session.connect()
  try {
    const { rows } = await session.query<{ 'QUERY PLAN': { 'Planning Time': number; 'Execution Time': number }[] }>(
      timed(statement),
    )
    const [plan] = rows[0]?.['QUERY PLAN'] ?? []
    return (plan?.['Planning Time'] ?? Infinity) + (plan?.['Execution Time'] ?? Infinity)
  } finally {
    await session.end()
  }
}

/** The statement with which `locks.list()` asks the server. */
async function statementOfList(lab: Lab): Promise<string> {
  const pool = new pg.Pool({ connectionString: lab.url('direct'), max: 1 })
  const sent: string[] = []
  pool.on('connect', (client) => {
    const query = client.query.bind(client) as (...given: unknown[]) => unknown
    const record = (...given: unknown[]): unknown => {
      sent.push(String((given[0] as { readonly text?: string }).text))
      return query(...given)
    }
    Object.assign(client, { query: record })
  })
  try {
    await new Lockstep(pool).locks.list({ statements: true })
  } finally {
    await pool.end()
  }
  const found = sent.findLast((text) => text.includes('pg_locks'))
  if (found === undefined) throw new Error('locks.list() did not read pg_locks')
  return found
}
