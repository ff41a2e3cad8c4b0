/** One side of `bench -- against`, in a process of its own. Arguments: where its library is, and its database. */
import type { Isolation, Key } from 'pg-lockstep'
import postgres from 'postgres'
import { loadLibrary, withPresentNames } from './againstLibrary.ts'
import { openPool } from './harness/openPool.ts'
import { ADD, CREATE } from './locks.sql.ts'
import { drain } from './outboxDrain.ts'
import { CONNECTIONS, eventOf, fill, onAllConnections } from './outboxEvents.ts'

export type AgainstDriver = 'pg' | 'postgres'

export type AgainstTask =
  | { readonly task: 'install' }
  | { readonly task: 'fill'; readonly count: number }
  | { readonly task: 'locks'; readonly driver: AgainstDriver; readonly isolation: Isolation; readonly count: number }
  | { readonly task: 'enqueue'; readonly driver: AgainstDriver; readonly count: number }
  | { readonly task: 'drain'; readonly driver: AgainstDriver; readonly count: number }

/** How many of them it did, in which time. */
export interface AgainstDone {
  readonly count: number
  readonly ms: number
}

const [entry, url] = process.argv.slice(2) as [string, string]
const { Lockstep: LockstepOf } = await loadLibrary(entry)
const opened = new Map<AgainstDriver, ReturnType<typeof withPresentNames>>()
let drains = 0

function open(driver: AgainstDriver): ReturnType<typeof withPresentNames> {
  const known = opened.get(driver)
  if (known !== undefined) return known
  const lockstep = withPresentNames(
    driver === 'pg'
      ? new LockstepOf(openPool(url, CONNECTIONS))
      : new LockstepOf(postgres(url, { max: CONNECTIONS, onnotice: () => undefined })),
  )
  opened.set(driver, lockstep)
  return lockstep
}

async function timed(count: number, work: () => Promise<unknown>): Promise<AgainstDone> {
  const startedAt = performance.now()
  await work()
  return { count, ms: performance.now() - startedAt }
}

async function locked(driver: AgainstDriver, isolation: Isolation, count: number): Promise<void> {
  const lockstep = open(driver)
  for (let number = 0; number < count; number++) {
    const id = (number % 1000) + 1
    const lock: Key = `Account:${id}`
    await lockstep.transaction({ lock, isolation }, async (tx) => {
      await tx.query(ADD, [id])
    })
  }
}

async function perform(task: AgainstTask): Promise<AgainstDone> {
  switch (task.task) {
    case 'install': {
      const pool = openPool(url, 2)
      await pool.query(CREATE)
      const lockstep = new LockstepOf(pool)
      await lockstep.migrate()
      await lockstep.close()
      await pool.end()
      return { count: 0, ms: 0 }
    }
    case 'fill':
      return { count: await fill(open('pg'), task.count), ms: 0 }
    case 'locks':
      return timed(task.count, () => locked(task.driver, task.isolation, task.count))
    case 'enqueue': {
      const lockstep = open(task.driver)
      const enqueue = (number: number): Promise<unknown> =>
        lockstep.transaction({}, (tx) => tx.enqueue(eventOf(number)))
      return timed(task.count, () => onAllConnections(enqueue)(task.count))
    }
    case 'drain':
      break
  }
  const { events, ms } = await drain(open(task.driver), task.count, `drain-${process.pid}-${++drains}`)
  return { count: events, ms }
}

process.on('message', (task: AgainstTask) => {
  void perform(task).then(
    (answer) => process.send?.({ answer }),
    (error: unknown) => process.send?.({ failed: error instanceof Error ? error.stack : String(error) }),
  )
})
process.send?.({ answer: 'ready' })
