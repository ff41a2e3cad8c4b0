/**
 * Run first by `npm test`: installs the servers that npm does not bring, where it may, and says loudly which tests will
 * be skipped where it must not. Under CI=true nothing is skipped: what cannot be installed is an error.
 */
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { isAbsolute } from 'node:path'
import { ensureAlone } from './matrix/install.ts'
import { pinned } from './matrix/versions.ts'
import { ensureOrms } from './orms/load.ts'
import { fetchPromtool } from './promtool.ts'
import { FAKETIME } from './server/fakeClock.ts'
import { findProgram } from './server/findProgram.ts'
import { CLIENT_15, clientProgram, SERVER_15 } from './server/postgres15.ts'

interface DebianPackage {
  readonly name: string
  /** The program whose presence shows that the package is installed: by name, or by path. */
  readonly program: string
  /** What has to be skipped without it. */
  readonly tests: string
}

const packages: readonly DebianPackage[] = [
  { name: 'pgbouncer', program: 'pgbouncer', tests: 'everything through a transaction pooler' },
  { name: 'pgpool2', program: 'pgpool', tests: 'the doctor behind a balancer' },
  { name: 'redis-server', program: 'redis-server', tests: 'the Redis sink, the comparison of leases with Redis' },
  { name: 'nats-server', program: 'nats-server', tests: 'the NATS sink' },
  { name: 'rabbitmq-server', program: 'rabbitmq-server', tests: 'the RabbitMQ sink' },
  { name: 'spin', program: 'spin', tests: 'the models of the protocols' },
  { name: 'gcc', program: 'gcc', tests: 'the models of the protocols' },
  { name: 'libc6-dev', program: '/usr/include/stdio.h', tests: 'the models of the protocols' },
  { name: 'zsh', program: 'zsh', tests: 'completion in zsh' },
  { name: 'fish', program: 'fish', tests: 'completion in fish' },
  { name: 'kcat', program: 'kcat', tests: 'the Kafka sink' },
  { name: 'chromium', program: 'chromium', tests: 'the console in a browser' },
  {
    name: 'postgresql-15-pgq3',
    program: '/usr/share/postgresql/15/extension/pgq.control',
    tests: 'the comparison of the outbox with PgQ',
  },
  { name: 'faketime', program: FAKETIME, tests: 'a failover to a server with another clock' },
  { name: CLIENT_15, program: clientProgram('pg_dump'), tests: 'the outbox after a restore, a failover' },
]

const isThere = (program: string): boolean =>
  isAbsolute(program) ? existsSync(program) : findProgram(program) !== undefined
const missing = (): DebianPackage[] => packages.filter(({ program }) => !isThere(program))

function aptGet(...args: string[]): boolean {
  // At run level 1 a package's scripts do not start its service: the tests start their own, in their own directories.
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' }
  const { status, stdout, stderr } = spawnSync('apt-get', ['-qq', ...args], { env, encoding: 'utf8' })
  if (status !== 0) console.error(`apt-get ${args.join(' ')} failed:\n${stdout}${stderr}`)
  return status === 0
}

function install(wanted: readonly DebianPackage[]): void {
  const names = wanted.map(({ name }) => name)
  if (process.getuid?.() !== 0 || findProgram('apt-get') === undefined) return
  console.log(`installing ${names.join(', ')} for the tests`)
  // An outdated list still may do when the mirror is out of reach, so a failed update is no reason to give up.
  aptGet('update')
  aptGet('install', '--yes', '--no-install-recommends', ...names)
}

/** Says what went wrong. */
function trying(work: () => void): string | undefined {
  try {
    work()
    return undefined
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

/** The server to which pg_dump belongs. */
function installServer15(): void {
  for (const server of pinned('pg')) if (server.alias === SERVER_15) ensureAlone(server)
}

if (missing().length > 0) install(missing())

const absent = missing()
const withoutServer15 = trying(installServer15)
const withoutOrms = trying(ensureOrms)
const withoutPromtool = fetchPromtool()
if ([withoutServer15, withoutOrms, withoutPromtool].some((each) => each !== undefined) || absent.length > 0) {
  const lines = absent.map(({ name, tests }) => `  ${name} is not installed. SKIPPED: ${tests}.`)
  const advice = `  To run them: sudo apt-get install ${absent.map(({ name }) => name).join(' ')}`
  const without = `  There is no PostgreSQL 15 (${withoutServer15}). SKIPPED: the outbox after a restore, a failover.`
  const rule = '='.repeat(80)
  const report = [
    ...lines,
    ...(absent.length > 0 ? [advice] : []),
    ...(withoutServer15 === undefined ? [] : [without]),
    ...(withoutOrms === undefined ? [] : [`  There are no ORMs (${withoutOrms}). The build needs their types.`]),
    ...(withoutPromtool === undefined
      ? []
      : [`  There is no promtool (${withoutPromtool}). SKIPPED: the alert rules.`]),
  ]
  console.error([rule, ...report, rule].join('\n'))
  if (process.env['CI'] === 'true') {
    console.error('CI=true allows no skipped tests.')
    process.exit(1)
  }
}
