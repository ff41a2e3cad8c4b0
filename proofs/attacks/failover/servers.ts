import pg from 'pg'
import { type PostgresServer, startPostgres } from '../../../tools/server/postgres.ts'
import { childrenOf, signal } from '../../../tools/server/processes.ts'
import { startProxy } from 'pg-lockstep/testing'
import { type Standby, startStandby } from '../../../tools/server/standby.ts'
import {
  CAUGHT_UP,
  FORGET_PRIMARY,
  RECEIVES,
  RELOAD,
  SYNCHRONOUS_COMMIT_OFF,
  WAIT_FOR_NOBODY,
  WAITS_FOR_STANDBY,
} from './failover.sql.ts'
import { until } from './until.ts'

/**
 * How a primary is replaced.
 * - crash: all its processes are killed at once.
 * - switchover: it is shut down, and its standby has everything.
 * - frozen: it is stopped with SIGSTOP. When it continues, another server is the primary, and it does not know.
 * - cut: its standby hears no more from it and is promoted, while it continues with its clients.
 * - standby: the synchronous standby crashes while commits wait for it and comes back. Then the primary crashes.
 */
export const KINDS = ['crash', 'switchover', 'frozen', 'cut', 'standby'] as const
export type Kind = (typeof KINDS)[number] | 'etcd'

/** Servers behind one address, of which one is the primary. */
export interface Servers {
  readonly url: string
  /**
   * Comes back when a new primary is there and another standby follows it: with the moments of the fault and of the promotion. `held` is called
   * between the moment from which on the standby gets nothing more and the end of the old primary.
   */
  failOver(kind: Kind, held: () => Promise<void>): Promise<{ readonly struckAt: number; readonly promotedAt: number }>
  /** How many old primaries `pg_rewind` has made standbys, where it is used. */
  rewound?(): Promise<number>
  close(): Promise<void>
}

export type Replication = 'synchronous' | 'asynchronous' | 'synchronous, without waiting for it'

/** A clock that is off is no reason for a longer wait: this is how long clients of an old primary may continue with it. */
const LINGER_MS = 700
const SETTINGS = { max_connections: '100', wal_keep_size: '512MB' }

interface Running {
  readonly server: PostgresServer
  stop(mode: 'immediate'): Promise<void>
}

/** A primary and a standby of it, made again after each failover; each with the next of the clocks, in turn. */
export async function startPair(replication: Replication, clocksMs: readonly number[] = [0]): Promise<Servers> {
  const first = await startPostgres({ settings: SETTINGS })
  let primary: Running = { server: first, stop: () => first.stop('immediate') }
  let standby: Standby
  let standbys = 0
  let { port } = first
  const proxy = await startProxy({
    get targetPort() {
      return port
    },
  })
  const follow = async (): Promise<void> => {
    if (replication === 'synchronous, without waiting for it') await ask(primary.server, SYNCHRONOUS_COMMIT_OFF, RELOAD)
    const clockOffsetMs = clocksMs[standbys++ % clocksMs.length] as number
    standby = await startStandby(primary.server, SETTINGS, clockOffsetMs === 0 ? {} : { clockOffsetMs })
    if (replication !== 'asynchronous') await standby.makeSynchronous()
    else await until(async () => (await ask(primary.server, CAUGHT_UP)) === 1)
  }
  await follow()
  let struckAt = 0
  let promotedAt = 0
  const promote = async (): Promise<void> => {
    await standby.promote()
    promotedAt = performance.now()
    port = standby.server.port
  }
  const strike: Readonly<Record<(typeof KINDS)[number], (held: () => Promise<void>) => Promise<void>>> = {
    async crash(held) {
      await held()
      struckAt = performance.now()
      await primary.server.crash()
      await promote()
    },
    async switchover() {
      struckAt = performance.now()
      await primary.server.stop('fast')
      await promote()
    },
    async frozen(held) {
      await held()
      const postmaster = primary.server.pid ?? 0
      const all = [postmaster, ...childrenOf(postmaster)]
      struckAt = performance.now()
      for (const pid of all) signal(pid, 'SIGSTOP')
      try {
        await promote()
      } finally {
        for (const pid of all) signal(pid, 'SIGCONT')
      }
      // Its clients are answered again.
      await linger()
    },
    async cut(held) {
      await held()
      struckAt = performance.now()
      await promote()
      await linger()
    },
    async standby() {
      await standby.server.crash()
      await until(async () => (await ask(primary.server, WAITS_FOR_STANDBY)) > 0, 'a commit that waits')
      await standby.server.start()
      await standby.makeSynchronous()
      struckAt = performance.now()
      await primary.server.crash()
      await promote()
    },
  }
  return {
    url: proxy.url(first.url()),
    async failOver(kind, held) {
      if (kind === 'etcd') throw new Error('a pair has no etcd')
      const behind = replication !== 'synchronous' || kind === 'cut'
      const old = primary
      await strike[kind](async () => {
        if (!behind || kind === 'switchover') return
        await ask(standby.server, FORGET_PRIMARY, RELOAD)
        await until(async () => (await ask(standby.server, RECEIVES)) === 0)
        await held()
      })
      proxy.cutAll()
      const promoted = standby
      primary = { server: promoted.server, stop: (mode) => promoted.stop(mode) }
      // It has copied its primary's settings, and no standby follows it yet.
      await ask(primary.server, WAIT_FOR_NOBODY, RELOAD)
      await old.stop('immediate')
      await follow()
      return { struckAt, promotedAt }
    },
    async close() {
      await proxy.close()
      await primary.stop('immediate')
      await standby.stop('immediate').catch(() => undefined)
    },
  }
}

function linger(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, LINGER_MS))
}

/** Runs them one after the other; says how many rows the last one has. */
async function ask(server: PostgresServer, ...texts: readonly string[]): Promise<number> {
  const client = new pg.Client({ connectionString: server.url() })
  await client.connect()
  try {
    let rows = 0
    for (const text of texts) rows = (await client.query(text)).rowCount ?? 0
    return rows
  } finally {
    await client.end()
  }
}
