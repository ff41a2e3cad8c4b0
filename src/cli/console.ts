import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, isIP } from 'node:net'
import { type ConsoleLockstep, createConsole, type Person } from '../console/index.ts'
import { onAbort } from '../postgres/index.ts'
import type { Call, Command } from './command.ts'
import { parseNumber } from './parseValues.ts'
import { untilInterrupted } from './interrupt.ts'
import { UsageError } from './usageError.ts'
import { withDatabase } from './withDatabase.ts'

const DEFAULT_PORT = '8400'
const DEFAULT_HOST = '127.0.0.1'
const TOKEN_VARIABLE = 'LOCKSTEP_CONSOLE_TOKEN'

export const consoleCommand: Command = {
  name: 'console',
  summary: 'a page in your browser: locks, leases and the outbox as they are',
  usage: '[--port N] [--host H] [--operator] [--token T | --people FILE] [--prometheus URL]',
  details: `Serves a page that shows locks, leases and the outbox, live, until Ctrl-C. It may only look; with --operator it
may also take leases away, and retry, skip, pause and resume streams.

Without a token, it is read-only and answers only this machine. For other machines use --host 0.0.0.0 and a token of 16
characters or more. Set the token in ${TOKEN_VARIABLE}: other users of this machine can see --token. --operator always
needs a token, and creates and prints one if you set none. With --people each person has a token: the file is a JSON list
of { "name", "role": "viewer" or "operator", "token" or "sha256" }. With --json the first line on stdout is an object with
the address, and with the token that it created.`,
  examples: [
    { line: 'pg-lockstep console', does: 'read-only, at http://127.0.0.1:8400/' },
    { line: 'pg-lockstep console --operator --port 0', does: 'with actions, on any free port' },
  ],
  options: ['url', 'schema', 'driver', 'port', 'host', 'operator', 'token', 'people', 'prometheus', 'json'],
  words: [],
  // The address is printed while it runs.
  fillsStdout: () => true,
  run({ values }) {
    const wanted = consoleAddressOf(values)
    return withDatabase(values, async ({ lockstep }) => {
      const { address } = await untilInterrupted(async (stop) => {
        // A database that cannot be asked is reported here, and not on the page.
        await lockstep.leases.list({ limit: 1 })
        const served = await serveConsole(lockstep, wanted)
        printAddress(served.address, wanted, values.json === 'true')
        await new Promise<void>((resolve) => void onAbort(stop, resolve))
        await served.close()
        return served
      })
      return {
        exitCode: 0,
        json: { ok: true, command: 'console', address, ended: true },
        text: () => 'The console has ended.',
      }
    })
  },
}

/** Where a console is served, and what it may do. */
export interface ConsoleAddress {
  readonly host: string
  /** 0: one that is free. */
  readonly port: number
  readonly operator: boolean
  readonly token: string | undefined
  readonly people?: readonly Person[] | undefined
  /** Where the charts get the last hour from. */
  readonly prometheus?: string | undefined
  /** The token was made here: it has to be printed, because the user does not know it yet. */
  readonly madeToken: boolean
}

export interface ServedConsole {
  readonly address: string
  close(): Promise<void>
}

/** Serves a console on a port of its own. */
export async function serveConsole(
  lockstep: ConsoleLockstep,
  place: Omit<ConsoleAddress, 'madeToken'>,
): Promise<ServedConsole> {
  const { host, port, operator, token, people, prometheus } = place
  const site = createConsole(lockstep, {
    operator,
    history: true,
    ...(token !== undefined && { token }),
    ...(people !== undefined && { people }),
    ...(prometheus !== undefined && { prometheus: { url: prometheus } }),
  })
  const server = createServer(site.listener)
  await listen(server, host, port)
  const { port: bound } = server.address() as AddressInfo
  return {
    address: `http://${isIP(host) === 6 ? `[${host}]` : host}:${bound}/`,
    async close() {
      const closed = new Promise((resolve) => server.close(resolve))
      await site.close()
      server.closeAllConnections()
      await closed
    },
  }
}

function listen(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(portTaken(error, host, port) ?? error))
    server.listen(port, host, resolve)
  })
}

function portTaken({ code }: NodeJS.ErrnoException, host: string, port: number): UsageError | undefined {
  if (code === 'EADDRINUSE')
    return new UsageError(`Port ${port} is taken.`, 'Use another with --port N, or --port 0 for any that is free.')
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND')
    return new UsageError(`This machine has no address ${host}.`, 'Use --host 127.0.0.1, or --host 0.0.0.0 for all.')
  if (code === 'EACCES') return new UsageError(`No permission to use port ${port}.`, 'Use one from 1024 on.')
  return undefined
}

/** Checked before anything is opened. */
export function consoleAddressOf(values: Call['values'], env: NodeJS.ProcessEnv = process.env): ConsoleAddress {
  const host = values.host ?? DEFAULT_HOST
  const port = parseNumber('port', values.port ?? DEFAULT_PORT)
  if (port > 65_535) throw new UsageError(`--port cannot be ${port}.`, 'Use a number from 0 to 65535.')
  const people = values.people === undefined ? undefined : readPeople(values.people)
  if (people !== undefined && (values.token !== undefined || values.operator === 'true')) {
    throw new UsageError(
      `--people excludes ${values.token === undefined ? '--operator' : '--token'}.`,
      'Each person in the file has a role and a token.',
    )
  }
  const token = people === undefined ? (values.token ?? (env[TOKEN_VARIABLE] || undefined)) : undefined
  if (token === undefined && people === undefined && !isLoopback(host)) {
    throw new UsageError(
      `On ${host} others could look at it, and there is no token.`,
      `Set ${TOKEN_VARIABLE} to what \`openssl rand -hex 16\` prints, or leave out --host.`,
    )
  }
  const operator = values.operator === 'true'
  const madeToken = operator && token === undefined
  const { prometheus } = values
  return { host, port, operator, token: madeToken ? makeToken() : token, people, prometheus, madeToken }
}

/** Whether they are good is for the console to say; what is in the file is not repeated. */
function readPeople(file: string): readonly Person[] {
  const advice = 'Write a JSON list of { "name", "role": "viewer" or "operator", "token" or "sha256" }.'
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as readonly Person[]
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new UsageError(code === undefined ? `${file} is not JSON.` : `${file} cannot be read: ${code}.`, advice)
  }
}

/** A random token, for as long as a console runs. */
export function makeToken(): string {
  return randomBytes(16).toString('hex')
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(?:\.\d{1,3}){3}$/.test(host)
}

function printAddress(address: string, { operator, token, people, madeToken }: ConsoleAddress, json: boolean): void {
  const told = {
    ok: true,
    command: 'console',
    address,
    operator,
    token: token !== undefined || people !== undefined,
    ...(madeToken && { madeToken: token }),
  }
  const words = [
    people !== undefined
      ? 'Each person logs in with a token of their own.'
      : operator
        ? 'It may change things.'
        : 'It is read-only.',
    ...(token === undefined
      ? []
      : [madeToken ? `Log in with the token ${token}, which ends with it.` : 'Log in with the token.']),
  ]
  process.stdout.write(
    json ? `${JSON.stringify(told)}\n` : `The console is at ${address}\n${words.join(' ')} Ctrl-C ends it.\n`,
  )
}
