import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { findProgram } from './findProgram.ts'
import { freePort } from './freePort.ts'
import { startGuard } from './guard.ts'
import { type GuardedProcess, spawnGuarded } from './guardedProcess.ts'
import { childrenOf, signal, waitUntilGone } from './processes.ts'
import { type Relay, startRelay } from './relay.ts'
import { giveTo, type Unprivileged, unprivileged } from './unprivileged.ts'

/** Debian's, whose programs Patroni calls. */
const BINARIES = '/usr/lib/postgresql/15/bin'
const PROGRAMS = ['patroni', 'etcd', 'haproxy'] as const
const START_MS = 120_000
const LOOK_EVERY_MS = 100

export interface ClusterOptions {
  /** Patroni's `synchronous_mode` with `synchronous_mode_strict`: a COMMIT waits for a standby, and no other one is promoted. */
  readonly synchronous: boolean
  readonly members?: number
  readonly settings?: Readonly<Record<string, string>>
}

/** What Patroni says of a member. */
export interface MemberStatus {
  readonly name: string
  readonly role: string
  readonly state: string
  readonly timeline?: number
}

/** Servers of PostgreSQL 15 under Patroni, with etcd and HAProxy, all on 127.0.0.1. */
export interface Cluster {
  /** By HAProxy: leads to the primary. */
  url(): string
  /** The name of the primary, as Patroni says; undefined while there is none. */
  leader(): Promise<string | undefined>
  members(): Promise<readonly MemberStatus[]>
  /** Comes back when all members are there, on one timeline: what is struck before can leave no member to promote. Says who leads. */
  healthy(): Promise<string>
  /** Comes back when a member is the leader that is not `old`. */
  led(old: string): Promise<void>
  /** Comes back when a member is the leader that is not `old`, takes writes, and, where replication is synchronous, has a standby. */
  promoted(old: string | undefined): Promise<string>
  switchover(): Promise<void>
  /** The name of the member that a COMMIT waits for. */
  synchronousStandby(): Promise<string>
  /** How many times `pg_rewind` has made an old primary a standby. */
  rewound(): Promise<number>
  /** The postmaster of a member and its children. */
  processes(member: string): Promise<readonly number[]>
  /** SIGKILL, to all of them at once. Patroni has another member promoted, and makes this one a standby. */
  kill(member: string): Promise<void>
  /** Between a member and etcd: while it is away, the member must give up being the leader. */
  etcdOf(member: string): Relay
  stop(): Promise<void>
}

/** What is missing for a cluster; undefined where everything is there. */
export function missingForCluster(): string | undefined {
  const missing: string[] = PROGRAMS.filter((name) => findProgram(name) === undefined)
  if (!existsSync(join(BINARIES, 'postgres'))) missing.push('postgresql-15')
  return missing.length === 0 ? undefined : missing.join(', ')
}

interface Member {
  readonly name: string
  readonly port: number
  readonly api: number
  readonly dataDir: string
  readonly relay: Relay
}

export async function startCluster({
  synchronous,
  members: count = 3,
  settings = {},
}: ClusterOptions): Promise<Cluster> {
  const missing = missingForCluster()
  if (missing !== undefined)
    throw new Error(`${missing} is not installed: apt-get install patroni python3-etcd etcd-server haproxy`)
  const directory = await mkdtemp(join(await realpath(tmpdir()), 'lockstep-cluster-'))
  const keeper = startGuard()
  keeper.removeAfterwards(directory)
  const running: { readonly name: string; readonly process: GuardedProcess; readonly dismiss: () => void }[] = []
  const members: Member[] = []
  const user = await unprivileged([dirname(directory), join(BINARIES, 'postgres')])
  const stop = async (): Promise<void> => {
    // Patroni first: it would start what is killed.
    for (const name of ['patroni', 'haproxy', 'etcd']) {
      await Promise.all(
        running
          .filter((each) => each.name === name)
          .map(async ({ process: { child, ending }, dismiss }) => {
            if (ending() === undefined) {
              const gone = once(child, 'exit')
              child.kill('SIGKILL')
              await gone
            }
            dismiss()
          }),
      )
    }
    for (const member of members) {
      await end(await postgresProcesses(member))
      await member.relay.stop()
    }
    keeper.dismiss()
    await rm(directory, { recursive: true, force: true, maxRetries: 5 })
  }
  const launch = (name: string, args: readonly string[], log: string): void => {
    const guard = startGuard()
    const process = spawnGuarded(findProgram(name) as string, args, { user, guard, logFile: join(directory, log) })
    running.push({ name, process, dismiss: () => guard.dismiss() })
  }
  try {
    await giveTo(user.owner, directory)
    const etcd = await startEtcd(directory, launch)
    for (let number = 1; number <= count; number++) {
      const name = `member${number}`
      const [port, api, relay] = [await freePort(), await freePort(), await startRelay(etcd)]
      const member: Member = { name, port, api, relay, dataDir: join(directory, name) }
      members.push(member)
      const file = join(directory, `${name}.json`)
      // JSON is YAML.
      await writeFile(file, JSON.stringify(configuration(member, synchronous, settings), null, 2))
      launch('patroni', [file], `${name}.log`)
    }
    const port = await startHaproxy(directory, members, user, launch)
    const cluster = new PatroniCluster(directory, members, port, synchronous, stop)
    await cluster.healthy()
    return cluster
  } catch (error) {
    const logs = await Promise.all(
      members.map(({ name }) => readFile(join(directory, `${name}.log`), 'utf8').catch(() => '')),
    )
    await stop()
    throw new Error(`the cluster did not start:\n${logs.map((log) => log.slice(-1500)).join('\n')}`, { cause: error })
  }
}

type Launch = (name: string, args: readonly string[], log: string) => void

async function startEtcd(directory: string, launch: Launch): Promise<string> {
  const [client, peer] = [`http://127.0.0.1:${await freePort()}`, `http://127.0.0.1:${await freePort()}`]
  const data = ['--name', 'one', '--data-dir', join(directory, 'etcd'), '--unsafe-no-fsync', '--enable-v2']
  const urls = ['--listen-client-urls', client, '--advertise-client-urls', client]
  const peers = ['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer, '--initial-cluster', `one=${peer}`]
  launch('etcd', [...data, ...urls, ...peers], 'etcd.log')
  await waitFor(async () => (await fetch(`${client}/health`)).ok, 'etcd')
  return client
}

async function startHaproxy(
  directory: string,
  members: readonly Member[],
  user: Unprivileged,
  launch: Launch,
): Promise<number> {
  const port = await freePort()
  const servers = members.map(
    ({ name, port: to, api }) => `  server ${name} 127.0.0.1:${to} check port ${api} on-marked-down shutdown-sessions`,
  )
  const lines = [
    'global',
    '  maxconn 500',
    'defaults',
    '  mode tcp',
    '  timeout connect 2s',
    '  timeout client 1h',
    '  timeout server 1h',
    '  timeout check 2s',
    'listen primary',
    `  bind 127.0.0.1:${port}`,
    '  option httpchk GET /primary',
    '  http-check expect status 200',
    '  default-server inter 300ms fall 2 rise 1',
    ...servers,
  ]
  const file = join(directory, 'haproxy.cfg')
  await writeFile(file, `${lines.join('\n')}\n`)
  if (user.owner !== undefined) await mkdir(join(directory, 'haproxy'), { recursive: true })
  launch('haproxy', ['-db', '-f', file], 'haproxy.log')
  return port
}

function configuration(
  { name, port, api, dataDir, relay }: Member,
  synchronous: boolean,
  settings: Readonly<Record<string, string>>,
): object {
  const parameters = {
    max_connections: '100',
    fsync: 'off',
    // pg_rewind needs both.
    full_page_writes: 'on',
    wal_log_hints: 'on',
    wal_keep_size: '512MB',
    unix_socket_directories: '',
    ...settings,
  }
  return {
    scope: 'lockstep',
    name,
    restapi: { listen: `127.0.0.1:${api}`, connect_address: `127.0.0.1:${api}` },
    // With the older protocol: with etcd3, Patroni 3.0.2 let a leader that had been frozen take the lock back from its successor, and the
    // two had different timelines. As a proxy: it would learn the server's own address, and not come by the relay.
    etcd: { hosts: `127.0.0.1:${new URL(relay.url).port}`, use_proxies: true },
    bootstrap: {
      dcs: {
        // The smallest that Patroni takes.
        ttl: 20,
        loop_wait: 1,
        retry_timeout: 3,
        maximum_lag_on_failover: 1_000_000_000,
        // After a crash the standby is promoted at once.
        primary_start_timeout: 0,
        synchronous_mode: synchronous,
        synchronous_mode_strict: synchronous,
        postgresql: { use_pg_rewind: true, use_slots: false, parameters },
      },
      initdb: [{ encoding: 'UTF8' }, { locale: 'C.UTF-8' }, { auth: 'trust' }, 'no-sync'],
      pg_hba: ['host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust'],
    },
    postgresql: {
      listen: `127.0.0.1:${port}`,
      connect_address: `127.0.0.1:${port}`,
      data_dir: dataDir,
      bin_dir: BINARIES,
      pgpass: `${dataDir}.pgpass`,
      // A member that cannot be rewound is copied again.
      remove_data_directory_on_rewind_failure: true,
      remove_data_directory_on_diverged_timelines: true,
      authentication: { superuser: { username: 'postgres' }, replication: { username: 'postgres' } },
      pg_hba: ['host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust'],
    },
  }
}

class PatroniCluster implements Cluster {
  readonly #directory: string
  readonly #members: readonly Member[]
  readonly #port: number
  readonly #synchronous: boolean
  readonly stop: () => Promise<void>

  constructor(
    directory: string,
    members: readonly Member[],
    port: number,
    synchronous: boolean,
    stop: () => Promise<void>,
  ) {
    this.#directory = directory
    this.#members = members
    this.#port = port
    this.#synchronous = synchronous
    this.stop = stop
  }

  url(): string {
    return `postgres://postgres@127.0.0.1:${this.#port}/postgres`
  }

  async members(): Promise<readonly MemberStatus[]> {
    for (const { api } of this.#members) {
      try {
        const answer = await fetch(`http://127.0.0.1:${api}/cluster`, { signal: AbortSignal.timeout(2000) })
        const { members } = (await answer.json()) as { members?: MemberStatus[] }
        // One that is cut off from etcd knows nothing.
        if (answer.ok && members !== undefined) return members
      } catch {
        // The next one may know.
      }
    }
    return []
  }

  async leader(): Promise<string | undefined> {
    for (const { name, api } of this.#members) {
      const asked = fetch(`http://127.0.0.1:${api}/primary`, { signal: AbortSignal.timeout(2000) })
      if (
        await asked.then(
          ({ ok }) => ok,
          () => false,
        )
      )
        return name
    }
    return undefined
  }

  async healthy(): Promise<string> {
    await waitFor(async () => {
      const members = await this.members()
      const timelines = new Set(members.map(({ timeline }) => timeline))
      const running = members.filter(({ state }) => /running|streaming/.test(state))
      return running.length === this.#members.length && timelines.size === 1 && !timelines.has(undefined)
    }, 'a healthy cluster')
    return this.promoted(undefined)
  }

  async led(old: string): Promise<void> {
    await waitFor(async () => {
      const leader = await this.leader()
      return leader !== undefined && leader !== old
    }, 'another leader')
  }

  async promoted(old: string | undefined): Promise<string> {
    let found: string | undefined
    await waitFor(async () => {
      const leader = await this.leader()
      if (leader === undefined || leader === old) return false
      const members = await this.members()
      const standbys = members.filter(({ role, state }) => role !== 'leader' && /running|streaming/.test(state))
      const enough = this.#synchronous ? standbys.some(({ role }) => role === 'sync_standby') : standbys.length > 0
      if (enough) found = leader
      return enough
    }, 'another leader')
    return found as string
  }

  async switchover(): Promise<void> {
    const leader = await this.leader()
    const { api } = this.#named(leader ?? '')
    const body = JSON.stringify({ leader })
    const answer = await fetch(`http://127.0.0.1:${api}/switchover`, { method: 'POST', body })
    if (!answer.ok) throw new Error(`no switchover: ${await answer.text()}`)
  }

  async synchronousStandby(): Promise<string> {
    const standby = (await this.members()).find(({ role }) => role === 'sync_standby')
    if (standby === undefined) throw new Error('the cluster has no synchronous standby')
    return standby.name
  }

  async rewound(): Promise<number> {
    const logs = await Promise.all(
      this.#members.map(({ name }) => readFile(join(this.#directory, `${name}.log`), 'utf8')),
    )
    return logs.join('').split('pg_rewind exit code=0').length - 1
  }

  processes(member: string): Promise<readonly number[]> {
    return postgresProcesses(this.#named(member))
  }

  async kill(member: string): Promise<void> {
    await end(await this.processes(member))
  }

  etcdOf(member: string): Relay {
    return this.#named(member).relay
  }

  #named(name: string): Member {
    const member = this.#members.find((each) => each.name === name)
    if (member === undefined) throw new Error(`there is no member ${name}`)
    return member
  }
}

async function postgresProcesses({ dataDir }: Member): Promise<readonly number[]> {
  const text = await readFile(join(dataDir, 'postmaster.pid'), 'utf8').catch(() => '')
  const postmaster = Number.parseInt(text, 10)
  return postmaster > 0 ? [postmaster, ...childrenOf(postmaster)] : []
}

/** The postmaster first, stopped, so that it does not clean up after the others. */
async function end(pids: readonly number[]): Promise<void> {
  const [postmaster] = pids
  if (postmaster === undefined) return
  signal(postmaster, 'SIGSTOP')
  for (const pid of [...childrenOf(postmaster), postmaster]) signal(pid, 'SIGKILL')
  await waitUntilGone([...pids], 5000)
}

async function waitFor(holds: () => Promise<boolean>, what: string): Promise<void> {
  for (const deadline = performance.now() + START_MS; performance.now() < deadline; await delay(LOOK_EVERY_MS)) {
    if (await holds().catch(() => false)) return
  }
  throw new Error(`${what} did not come within ${START_MS / 1000} s`)
}
