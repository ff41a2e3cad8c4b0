import type { Connection, Driver } from './connection.ts'
import { PoolRecovery } from './poolRecovery.ts'
import { Memories, PostgresJsConnection, type Reading } from './postgresJsConnection.ts'
import { type PostgresJs, type PostgresJsClient, type PostgresJsQuery, unsupported } from './postgresJsClient.ts'
import { PostgresJsPool } from './postgresJsPool.ts'
import { TransformBypass } from './postgresJsTransforms.ts'
import { connectWithin } from './withConnection.ts'

export type { PostgresJs, PostgresJsClient, PostgresJsReserved } from './postgresJsClient.ts'

type OnNotification = (payload: string | undefined) => void

/** The seam on postgres.js. */
export function postgresJsDriver(sql: PostgresJs, silenceMs: number): Driver {
  const pool = PostgresJsPool.of(sql)
  const reading: Reading = { isKnown: true, bypass: TransformBypass.of(sql) }
  // postgres.js keeps one connection for LISTEN until it ends: after a reconnect it does not know what to unlisten.
  const listening = new Map<string, Set<OnNotification>>()
  const memories = new Memories()
  const route = routeOf(sql)
  const driver: Driver = {
    name: 'postgres',
    poolSize: pool.size,
    connects: {
      option: `connect_timeout: ${Math.max(1, Math.floor(silenceMs / 1000))}`,
      limitMs: Number(sql.options.connect_timeout) * 1000 || Infinity,
      silenceMs,
      watched: false,
    },
    hasIdle: () => pool.hasIdle(),
    hasCapacity: () => pool.hasCapacity(),
    isExhausted: () => pool.isExhausted(),
    connect() {
      // A pool that has one at hand gives it at once.
      return pool.hasIdle() ? connect() : recovery.whileWaiting(connect())
    },
    async listen(channel, heard) {
      const listeners = listening.get(channel) ?? new Set<OnNotification>()
      listeners.add(heard)
      try {
        if (!listening.has(channel)) {
          let begun = false
          const notify = (payload?: string): void => listeners.forEach((each) => each(payload))
          await sql.listen(channel, notify, () => {
            // Not the first time: it was away.
            if (begun) notify()
            begun = true
          })
          listening.set(channel, listeners)
        }
      } catch (error) {
        listeners.delete(heard)
        throw error
      }
      return () => Promise.resolve(void listeners.delete(heard))
    },
    wrap(client) {
      const given = client as PostgresJsClient
      const isKnown = cancellerOf(given) === cancellerOf(sql)
      return new PostgresJsConnection(given, sql, isKnown ? reading : UNKNOWN_READING, undefined)
    },
  }
  const recovery = recoveryOf(sql, pool, driver, silenceMs)
  const noteSilence = (): void => recovery.noteSilence()

  function connect(): Promise<Connection> {
    recovery.noteLent()
    return pool.take(
      (taken) => new PostgresJsConnection(taken.client, sql, reading, { pool, memories, route, taken, noteSilence }),
    )
  }

  return driver
}

const recoveries = new WeakMap<PostgresJs, PoolRecovery>()

/** Two Locksteps on one `sql` share it. */
function recoveryOf(sql: PostgresJs, pool: PostgresJsPool, driver: Driver, silenceMs: number): PoolRecovery {
  const known = recoveries.get(sql)
  if (known !== undefined) {
    known.within(silenceMs)
    return known
  }
  const { host } = sql.options
  const recovery = new PoolRecovery(
    {
      driver,
      hasOneServer: Array.isArray(host) && host.length === 1,
      lentCount: () => pool.lentCount,
      suspects: (whose) => pool.connections.suspects(whose),
      keepsBeside: true,
      beside: (withinMs) => connectBeside(sql, withinMs),
    },
    silenceMs,
  )
  recoveries.set(sql, recovery)
  return recovery
}

/** The channel that is listened to for the connection's sake. No notification is sent there. */
const BESIDE = 'lockstep_beside'

/** The one way to a connection outside of the pool: postgres.js listens on a pool of its own, with one connection and the same options. */
function connectBeside(sql: PostgresJs, withinMs: number): Promise<Connection> {
  if (sql.listen.sql === undefined) sql.listen(BESIDE, () => undefined).then(undefined, () => undefined)
  const { sql: beside } = sql.listen
  if (beside === undefined) return Promise.reject(unsupported())
  const pool = PostgresJsPool.of(beside)
  const [reading, memories] = [{ isKnown: true, bypass: TransformBypass.of(beside) }, new Memories()]
  const connect = (): Promise<Connection> =>
    pool.take(
      (taken) => new PostgresJsConnection(taken.client, beside, reading, { pool, memories, route: undefined, taken }),
    )
  return connectWithin({ connect, isExhausted: () => pool.isExhausted() }, withinMs)
}

const UNKNOWN_READING: Reading = { isKnown: false, bypass: undefined }

/** By which a pool's clients are recognized. The query is never sent. */
function cancellerOf(client: PostgresJsClient): unknown {
  return (client.unsafe('') as PostgresJsQuery).canceller
}

/** Several hosts are tried one after the other until one answers. */
function routeOf({ options: { host, port, database } }: PostgresJs): string | undefined {
  if (!Array.isArray(host) || !Array.isArray(port)) return undefined
  return `${host.map((each, place) => `${each}:${port[place]}`).join(',')}/${String(database)}`
}
