import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { findProgram } from './findProgram.ts'
import { type Pooler, startPooler } from './pooler.ts'

export interface PgBouncerOptions {
  readonly postgresPort: number
  /** Default 127.0.0.1. */
  readonly postgresHost?: string
  readonly poolMode: 'transaction' | 'session' | 'statement'
  /** Server connections for each pair of database and user. Default 20. */
  readonly defaultPoolSize?: number
  /** Users and the passwords PgBouncer gives to the server; clients need none. Default: postgres, without. */
  readonly users?: Readonly<Record<string, string>>
  readonly settings?: Readonly<Record<string, string>>
}

/** The special database `pgbouncer` is its administration console. */
export type PgBouncer = Pooler

const PROGRAM = 'pgbouncer'
const defaultUsers: Readonly<Record<string, string>> = { postgres: '' }

export function pgBouncerAvailable(): boolean {
  return findProgram(PROGRAM) !== undefined
}

export function startPgBouncer(options: PgBouncerOptions): Promise<PgBouncer> {
  return startPooler({
    name: PROGRAM,
    user: Object.keys(options.users ?? defaultUsers)[0] ?? 'postgres',
    configure: (port, directory) => writeConfiguration(directory, port, options),
    args: (_, directory) => ['-q', join(directory, 'pgbouncer.ini')],
    // The console needs no server behind it.
    database: 'pgbouncer',
    question: 'show version',
    isReady: () => true,
    // TERM drops its clients at once; INT would wait for their transactions.
    stopSignal: 'SIGTERM',
  })
}

async function writeConfiguration(directory: string, port: number, options: PgBouncerOptions): Promise<void> {
  const users = options.users ?? defaultUsers
  const quoted = (text: string) => `"${text.replaceAll('"', '""')}"`
  const userList = join(directory, 'users.txt')
  await writeFile(
    userList,
    Object.entries(users)
      .map((pair) => `${pair.map(quoted).join(' ')}\n`)
      .join(''),
  )
  const settings: Record<string, string> = {
    listen_addr: '127.0.0.1',
    listen_port: String(port),
    unix_socket_dir: '',
    auth_type: 'trust',
    auth_file: userList,
    admin_users: Object.keys(users).join(','),
    pool_mode: options.poolMode,
    default_pool_size: String(options.defaultPoolSize ?? 20),
    max_client_conn: '1000',
    ignore_startup_parameters: 'extra_float_digits',
    ...options.settings,
  }
  const lines = [
    '[databases]',
    `* = host=${options.postgresHost ?? '127.0.0.1'} port=${options.postgresPort}`,
    '[pgbouncer]',
    ...Object.entries(settings).map(([name, value]) => `${name} = ${value}`),
  ]
  await writeFile(join(directory, 'pgbouncer.ini'), `${lines.join('\n')}\n`)
}
