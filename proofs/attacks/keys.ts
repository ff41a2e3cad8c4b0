import { key, type Key } from 'pg-lockstep'
import pg from 'pg'
import { goal, type Goal, type ResultRow } from '../../tools/judge/report.ts'
import type { Random } from '../seed.ts'
import { DRIVERS, type Lab } from './lab.ts'
import { attackInLab } from './attack.ts'
import { COLLISION, lockAsNamed, ROLLBACK } from './keys.sql.ts'

interface Size {
  readonly clients: number
  readonly durationMs: number
}

const KEYS = Array.from({ length: 6 }, (_, number) => key`Account:${number}`)
const DEADLOCK = '40P01'

/**
 * Thirty-two clients lock two to four of six keys, each in an order of its own, some shared. The server must find no deadlock. The
 * control takes the same locks in the order in which they are named and must run into some. And two keys whose 32-bit hashes are
 * equal must not know of each other.
 */
export const keys = attackInLab<Size>({
  name: 'keys',
  about: 'several keys in opposite orders: no deadlock; keys that collide in 32 bits do not block each other',
  full: { clients: 32, durationMs: 10_000 },
  small: { clients: 32, durationMs: 1500 },
  settings: { deadlock_timeout: '20ms' },
  async run(lab, size, reportProgress, random) {
    reportProgress(`keys: ${size.clients} clients for ${size.durationMs} ms`)
    const sorted = await withLockstep(lab, size, random)
    reportProgress('keys: the control')
    const unsorted = await withoutOrder(lab, size, random)
    reportProgress('keys: a collision in 32 bits')
    const passed = await collidingKeysPass(lab)
    const results: ResultRow[] = [
      { locks: 'declared', transactions: sorted.done, 'deadlocks (40P01)': sorted.deadlocks },
      { locks: 'in the order named', transactions: unsorted.done, 'deadlocks (40P01)': unsorted.deadlocks },
    ]
    const goals: Goal[] = [
      goal('declared locks: deadlocks', sorted.deadlocks, '=', 0),
      goal('declared locks: transactions', sorted.done, '>=', size.clients),
      goal('control in the order named: deadlocks', unsorted.deadlocks, '>=', 1),
      goal('two keys of one 32-bit hash held at once', passed ? 1 : 0, '=', 1),
    ]
    return { results, goals }
  },
})

/** How much longer the control runs until it has its first deadlock. */
const LONGEST_CONTROL_MS = 60_000

/** Two to four different keys in a random order. */
function draw(random: Random): Key[] {
  return random.shuffled(KEYS).slice(0, random.whole(2, 4))
}

async function withLockstep(lab: Lab, size: Size, random: Random): Promise<{ done: number; deadlocks: number }> {
  let done = 0
  let deadlocks = 0
  const until = performance.now() + size.durationMs
  await Promise.all(
    Array.from({ length: size.clients }, async (_, number) => {
      const driver = DRIVERS[number % DRIVERS.length] ?? 'pg'
      const client = lab.client(driver, lab.url('direct'))
      while (performance.now() < until) {
        const [shared, ...exclusive] = draw(random)
        const isolation = random.chance(0.3) ? 'serializable' : 'read committed'
        const lockShared = shared === undefined ? [] : [shared]
        try {
          await client.lockstep.transaction(
            { lock: exclusive, lockShared, isolation, retry: { attempts: 1 } },
            async (tx) => {
              await tx.query('SELECT 1')
            },
          )
          done++
        } catch (error) {
          if ((error as { code?: string }).code !== DEADLOCK) throw error
          deadlocks++
        }
      }
      await client.close()
    }),
  )
  return { done, deadlocks }
}

async function withoutOrder(lab: Lab, size: Size, random: Random): Promise<{ done: number; deadlocks: number }> {
  let done = 0
  let deadlocks = 0
  const until = performance.now() + size.durationMs / 2
  const goesOn = (): boolean => performance.now() < (deadlocks > 0 ? until : until + LONGEST_CONTROL_MS)
  const { lockstep } = lab.client('pg', lab.url('direct'))
  await Promise.all(
    Array.from({ length: size.clients }, async () => {
      const client = new pg.Client({ connectionString: lab.url('direct') })
      await client.connect()
      while (goesOn()) {
        try {
          await client.query(lockAsNamed(draw(random).map((each) => lockstep.lockId(each))))
          done++
        } catch (error) {
          if ((error as { code?: string }).code !== DEADLOCK) throw error
          deadlocks++
          await client.query(ROLLBACK)
        }
      }
      await client.end()
    }),
  )
  return { done, deadlocks }
}

async function collidingKeysPass(lab: Lab): Promise<boolean> {
  const { rows } = await lab.admin.query<{ one: Key; other: Key }>(COLLISION)
  const [pair] = rows
  if (pair === undefined) throw new Error('No two labels collide in 32 bits: the control is void.')
  const [holder, visitor] = [lab.client('pg', lab.url('direct')), lab.client('pg', lab.url('direct'))]
  return holder.lockstep.transaction({ lock: pair.one }, async () => {
    await visitor.lockstep.transaction({ lock: pair.other, waitMs: 0 }, async () => undefined)
    return true
  })
}
