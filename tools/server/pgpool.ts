import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { findProgram } from './findProgram.ts'
import { freePort } from './freePort.ts'
import { type Pooler, startPooler } from './pooler.ts'

export interface PgpoolOptions {
  readonly primaryPort: number
  readonly standbyPort: number
  /** How the reads are spread. Default: all of them go to the standby, so that every session shows what balancing does. */
  readonly weights?: { readonly primary: number; readonly standby: number }
  readonly settings?: Readonly<Record<string, string>>
}

export type Pgpool = Pooler

const PROGRAM = 'pgpool'

export function pgpoolAvailable(): boolean {
  return findProgram(PROGRAM) !== undefined
}

/** Pgpool-II in front of a primary and its streaming standby, on 127.0.0.1, with load balancing on. */
export function startPgpool(options: PgpoolOptions): Promise<Pgpool> {
  return startPooler({
    name: PROGRAM,
    user: 'postgres',
    configure: (port, directory) => writeConfiguration(directory, port, options),
    args: (_, directory) => ['-n', '-D', '-f', join(directory, 'pgpool.conf'), '-F', join(directory, 'pcp.conf')],
    // Ready when it has found out which of the two is the primary.
    database: 'postgres',
    question: 'show pool_nodes',
    isReady: (rows) =>
      rows.every(({ status }) => status === 'up') && rows.map(({ role }) => role).join() === 'primary,standby',
    readyMs: 60_000,
    // INT drops its clients at once; TERM would wait for them to leave.
    stopSignal: 'SIGINT',
  })
}

async function writeConfiguration(directory: string, port: number, options: PgpoolOptions): Promise<void> {
  const { primary, standby } = options.weights ?? { primary: 0, standby: 1 }
  const settings: Record<string, string> = {
    backend_clustering_mode: 'streaming_replication',
    listen_addresses: '127.0.0.1',
    port: String(port),
    unix_socket_directories: directory,
    // Its administration port is not used, and cannot be turned off.
    pcp_listen_addresses: '127.0.0.1',
    pcp_port: String(await freePort()),
    pcp_socket_dir: directory,
    pid_file_name: join(directory, 'pgpool.pid'),
    logdir: directory,
    backend_hostname0: '127.0.0.1',
    backend_port0: String(options.primaryPort),
    backend_weight0: String(primary),
    backend_hostname1: '127.0.0.1',
    backend_port1: String(options.standbyPort),
    backend_weight1: String(standby),
    load_balance_mode: 'on',
    sr_check_period: '1',
    sr_check_user: 'postgres',
    health_check_period: '0',
    enable_pool_hba: 'off',
    pool_passwd: '',
    num_init_children: '16',
    max_pool: '1',
    ...options.settings,
  }
  const lines = Object.entries(settings).map(([name, value]) => `${name} = '${value}'`)
  await writeFile(join(directory, 'pgpool.conf'), `${lines.join('\n')}\n`)
  await writeFile(join(directory, 'pcp.conf'), '')
}
