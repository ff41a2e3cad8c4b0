import pg from 'pg'
import { afterAll, afterEach, beforeAll, expect } from 'vitest'
import type { Connection, Driver } from './connection.ts'
import { driverFor } from './driver.ts'

/** One pool of a driver, and what the suite needs to know of it. */
export interface OpenPool {
  readonly pool: object
  /** A client as the caller's own code gets it, for `wrap()`. */
  borrow(this: void): Promise<Borrowed>
  end(this: void): Promise<void>
}

/** A client in its owner's hands. */
export interface Borrowed {
  readonly client: object
  returnToPool(this: void): void
}

/** One way to configure a driver. */
export interface Setting {
  readonly name: string
  /** Whether a transaction pooler stands between. */
  readonly pooled: boolean
  readonly url: string
  open(max: number, url: string): OpenPool
}

/** What the suites do with a setting's connections. */
export interface ConnectionBench {
  open(this: void, max?: number, url?: string): OpenPool & { readonly driver: Driver }
  /** A connection that is destroyed after the test, if it has not gone back by then. */
  connect(this: void, driver: Driver): Promise<Connection>
  /** Ends a backend from outside. */
  terminate(this: void, pid: number): Promise<void>
  /** The backend is gone from the server's list. */
  gone(this: void, pid: number): Promise<void>
  /** The backend sleeps in pg_sleep(). */
  sleeps(this: void, pid: number): Promise<void>
  /** The connection's end was seen. */
  lost(this: void, connection: Connection): Promise<void>
  /** Whether a promise is still open after the other connection has made a few round trips. */
  stillWaiting(this: void, pending: Promise<unknown>, other: Connection): Promise<boolean>
}

/** Call it inside a `describe`: it cleans up after each test. */
export function connectionBench(setting: Setting, adminUrl: string): ConnectionBench {
  const opened: OpenPool[] = []
  const held: Connection[] = []
  let admin: pg.Client

  beforeAll(async () => {
    admin = new pg.Client(adminUrl)
    await admin.connect()
  })
  afterAll(() => admin.end())
  afterEach(async () => {
    for (const connection of held.splice(0)) connection.destroy()
    for (const each of opened.splice(0)) await each.end()
  })

  async function countBackends(pid: number, condition = 'true'): Promise<number | null> {
    return (await admin.query(`SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND ${condition}`, [pid])).rowCount
  }

  return {
    open(max = 2, url = setting.url) {
      const made = setting.open(max, url)
      opened.push(made)
      return { ...made, driver: driverFor(made.pool) }
    },
    async connect(driver) {
      const connection = await driver.connect()
      held.push(connection)
      return connection
    },
    async terminate(pid) {
      await admin.query('SELECT pg_terminate_backend($1)', [pid])
    },
    async gone(pid) {
      await expect.poll(() => countBackends(pid)).toBe(0)
    },
    async sleeps(pid) {
      await expect.poll(() => countBackends(pid, `wait_event = 'PgSleep'`)).toBe(1)
    },
    async lost(connection) {
      await expect.poll(() => connection.lost).toBe(true)
    },
    async stillWaiting(pending, other) {
      let settled = false
      pending.then(
        () => (settled = true),
        () => (settled = true),
      )
      for (let round = 0; round < 5; round++) await other.script('SELECT 1')
      return !settled
    },
  }
}
