import { randomBytes } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { type SinkName, type SinkPlan, SINKS } from './desk.ts'

export interface DeskOptions {
  readonly processes: number
  /** Connections of each process. */
  readonly poolSize: number
  /** How long a request waits for a connection, a lock or its turn. */
  readonly waitMs: number
  readonly host: string
  /** Undefined: the usual one, or another if that is taken. */
  readonly port: number | undefined
  readonly token: string | undefined
  /** What the console asks for: the desk's own token, or one that is made for an operator. */
  readonly consoleToken: string | undefined
  readonly operator: boolean
  readonly sink: SinkPlan
  readonly traffic: boolean
  /** Whether dispatchers, readers and the reconciler run beside the requests. */
  readonly background: boolean
  readonly log: boolean
  /** Without the page of the race; its API is there. */
  readonly headless: boolean
  readonly verbose: boolean
  readonly quiet: boolean
  readonly dataDir: string
  readonly pgPort: number | undefined
  /** A server that is already there, to use instead of our own. */
  readonly url: string | undefined
}

export class OptionError extends Error {}

export const DEFAULT_PORT = 4800
const SINK_URLS: Readonly<Record<SinkName, string>> = {
  local: '',
  nats: 'nats://127.0.0.1:4222',
  redis: 'redis://127.0.0.1:6379',
  rabbitmq: 'amqp://guest:guest@127.0.0.1:5672',
  webhook: '',
  kafka: '127.0.0.1:9092',
}
const LEAST_TOKEN = 16
const DEFAULT_POOL = 10
const DEFAULT_WAIT_MS = 10_000

export const USAGE = `The desk: five systems that go wrong under concurrency, and do not here.

  npm start                    on a PostgreSQL of its own, kept in .lockstep/data
  DATABASE_URL=… npm start     on yours, in the schemas lockstep, lockstep_desk and lockstep_exchange

Options, after npm start --

  --processes N    how many processes share the port; default 1
  --pool N         connections of each process; default ${DEFAULT_POOL}
  --wait MS        how long a request waits for a connection, a lock or its turn; default ${DEFAULT_WAIT_MS}
  --port N         where it answers; default ${DEFAULT_PORT}, or another if that is taken; 0: any that is free
  --host HOST      on which address; default 127.0.0.1. Beyond this machine only with --token
  --token TEXT     what clients have to send as a bearer, ${LEAST_TOKEN} characters at least
  --operator       the console can change things: release leases, retry, skip, pause and resume. It asks for a token:
                   that of --token, or one that is printed at the start
  --sink NAME      where trades are published: ${SINKS.join(', ')}; default local, a table of the same database
  --sink-url URL   where the broker answers; default: its usual port on this machine. Of webhook: who receives them, signed
                   with DESK_WEBHOOK_SECRET; default: the desk itself
  --no-traffic     without the few requests a second that the desk sends itself
  --no-background  without dispatchers, readers and the reconciler: another desk on the same database has them
  --log            a line for each request
  --headless       without the page of the race: its API is there, and needs no browser
  --verbose        says where everything is, and what to try
  --quiet          says only what goes wrong
  --data DIR       where its PostgreSQL keeps its data
  --pg-port N      where its PostgreSQL listens; default: a free port
  --help           this`

/** What was asked for. */
export function parseOptions(args: readonly string[], env: NodeJS.ProcessEnv = process.env): DeskOptions | 'help' {
  const values = parse(args)
  if (values.help === true) return 'help'
  const host = values.host ?? '127.0.0.1'
  const token = tokenFor(host, values.token)
  const operator = values.operator === true
  return {
    processes: number('processes', values.processes, 1, 64) ?? 1,
    // Below 4 a process has none left beside those that listen and dispatch.
    poolSize: number('pool', values.pool, 4, 1000) ?? DEFAULT_POOL,
    waitMs: number('wait', values.wait, 100, 600_000) ?? DEFAULT_WAIT_MS,
    host,
    port: number('port', values.port, 0, 65_535),
    token,
    consoleToken: token ?? (operator ? randomBytes(16).toString('hex') : undefined),
    operator,
    sink: sinkOf(values.sink ?? 'local', values['sink-url'], token, env['DESK_WEBHOOK_SECRET']),
    traffic: values['no-traffic'] !== true,
    background: values['no-background'] !== true,
    log: values.log === true,
    headless: values.headless === true,
    verbose: values.verbose === true,
    quiet: values.quiet === true,
    dataDir: values.data ?? fileURLToPath(new URL('../.lockstep/data', import.meta.url)),
    pgPort: number('pg-port', values['pg-port'], 1, 65_535),
    url: env['DATABASE_URL'] || undefined,
  }
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        processes: { type: 'string' },
        pool: { type: 'string' },
        wait: { type: 'string' },
        port: { type: 'string' },
        host: { type: 'string' },
        token: { type: 'string' },
        operator: { type: 'boolean' },
        sink: { type: 'string' },
        'sink-url': { type: 'string' },
        'no-traffic': { type: 'boolean' },
        'no-background': { type: 'boolean' },
        log: { type: 'boolean' },
        headless: { type: 'boolean' },
        verbose: { type: 'boolean' },
        quiet: { type: 'boolean' },
        data: { type: 'string' },
        'pg-port': { type: 'string' },
        help: { type: 'boolean', short: 'h' },
      },
    }).values
  } catch (error) {
    throw new OptionError(`${(error as Error).message}\n\n${USAGE}`)
  }
}

function number(name: string, given: string | undefined, least: number, most: number): number | undefined {
  if (given === undefined) return undefined
  const value = Number(given)
  if (/^\d+$/.test(given) && value >= least && value <= most) return value
  throw new OptionError(`--${name} must be a number from ${least} to ${most}, not ${JSON.stringify(given)}.`)
}

/** Every client that can reach the desk can move its money. */
function tokenFor(host: string, token: string | undefined): string | undefined {
  if (token !== undefined && token.length < LEAST_TOKEN)
    throw new OptionError(`--token must have at least ${LEAST_TOKEN} characters.`)
  if (token === undefined && !isLoopback(host))
    throw new OptionError(`--host ${host} is open to others: it needs a --token.`)
  return token
}

export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host)
}

function sinkOf(
  given: string,
  url: string | undefined,
  token: string | undefined,
  secret: string | undefined,
): SinkPlan {
  const name = SINKS.find((each) => each === given)
  if (name === undefined)
    throw new OptionError(`--sink must be one of ${SINKS.join(', ')}, not ${JSON.stringify(given)}.`)
  if (name === 'local' && url !== undefined) throw new OptionError('--sink-url is for a broker: choose it with --sink.')
  const plan = { name, url: url ?? SINK_URLS[name] }
  if (name !== 'webhook') return plan
  if (url !== undefined && !secret)
    throw new OptionError('--sink webhook with --sink-url needs DESK_WEBHOOK_SECRET, which the receiver has as well.')
  return {
    ...plan,
    // Both ends are here: no other process has to know it.
    secret: secret || `whsec_${randomBytes(32).toString('base64')}`,
    ...(token !== undefined && { authorization: `Bearer ${token}` }),
  }
}
