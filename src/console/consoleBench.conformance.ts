import { createServer, type IncomingMessage, request as httpRequest, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished } from 'vitest'
import { type Console, type ConsoleLockstep, type ConsoleOptions, createConsole } from './index.ts'
import type { DatabaseProblem, Problem, Session, Snapshots, Tab } from './wire.ts'

export interface Asked {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
  /** The address of the client, one of 127.0.0.0/8. */
  readonly from?: string
}

/** Where operators need a token and the test names none: the bench sends it with every request. */
const TOKEN = 'the-token-of-the-bench'

export interface Answered {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly text: string
  /** As a problem. */
  problem(): Problem
}

/** What a stream has brought so far. */
export interface Stream {
  readonly incoming: IncomingMessage
  readonly seen: readonly SeenEvent[]
  /** The text between events that begins with a colon. */
  readonly comments: readonly string[]
  /** The next event that fits, or one that has come since the last that was asked for. */
  next<Name extends Tab>(tab: Name, fits?: (snapshot: Snapshots[Name]) => boolean): Promise<Snapshots[Name]>
  trouble(): Promise<DatabaseProblem>
  /** Comes back when the server has ended it. */
  readonly ended: Promise<void>
  leave(): void
}

export interface SeenEvent {
  readonly name: string
  readonly data: string
}

/** A console on a port of its own, and a browser that sends what the test says. */
export interface Bench {
  readonly console: Console
  readonly server: Server
  readonly host: string
  ask(path: string, asked?: Asked): Promise<Answered>
  /** As the page does it: same origin, JSON, the session's csrf. */
  post(path: string, body: unknown, headers?: Readonly<Record<string, string>>): Promise<Answered>
  session(headers?: Readonly<Record<string, string>>): Promise<Session>
  stream(show: string, headers?: Readonly<Record<string, string>>): Promise<Stream>
  close(): Promise<void>
}

/** Closed after the test. */
export async function bench(lockstep: ConsoleLockstep, options: ConsoleOptions = {}, port = 0): Promise<Bench> {
  // On a busy machine everything takes long; a test is not to wait for that.
  const own = options.operator === true && options.token === undefined
  const authorization = own ? { authorization: `Bearer ${TOKEN}` } : {}
  const site = createConsole(lockstep, { share: 1, ...options, ...(own && { token: TOKEN }) })
  const server = createServer(site.listener)
  await new Promise<void>((resolve) => void server.listen(port, '127.0.0.1', resolve))
  const base = options.base === undefined || options.base === '/' ? '' : options.base
  const bound = (server.address() as AddressInfo).port
  const host = `127.0.0.1:${bound}`
  const send = (path: string, { method = 'GET', headers: given = {}, body, from }: Asked): Promise<IncomingMessage> =>
    new Promise((resolve, reject) => {
      const headers = { ...authorization, ...given }
      const local = from === undefined ? {} : { localAddress: from }
      const sent = httpRequest(
        { host: '127.0.0.1', port: bound, path, method, headers, agent: false, ...local },
        resolve,
      )
      sent.on('error', reject)
      sent.end(body)
    })
  const ask: Bench['ask'] = async (path, asked = {}) => answered(await send(path, asked))
  const made: Bench = {
    console: site,
    server,
    host,
    ask,
    async session(headers = {}) {
      const { status, text } = await ask(`${base}/api/session`, { headers })
      expect(status).toBe(200)
      return JSON.parse(text) as Session
    },
    async post(path, body, headers = {}) {
      const { csrf } = headers['x-lockstep-csrf'] === undefined ? await made.session(headers) : { csrf: '' }
      return ask(`${base}${path}`, {
        method: 'POST',
        headers: {
          origin: `http://${host}`,
          'content-type': 'application/json',
          'x-lockstep-csrf': csrf,
          ...headers,
        },
        body: JSON.stringify(body),
      })
    },
    async stream(show, headers = {}) {
      const incoming = await send(`${base}/api/stream?show=${show}`, { headers })
      expect(incoming.statusCode).toBe(200)
      return streamOf(incoming)
    },
    async close() {
      const closed = new Promise((resolve) => server.close(resolve))
      await site.close()
      server.closeAllConnections()
      await closed
    },
  }
  onTestFinished(() => made.close())
  return made
}

async function answered(incoming: IncomingMessage): Promise<Answered> {
  const chunks: Buffer[] = []
  for await (const chunk of incoming) chunks.push(chunk as Buffer)
  const text = Buffer.concat(chunks).toString('utf8')
  return {
    status: incoming.statusCode ?? 0,
    headers: incoming.headers,
    text,
    problem: () => JSON.parse(text) as Problem,
  }
}

function streamOf(incoming: IncomingMessage): Stream {
  const seen: SeenEvent[] = []
  const comments: string[] = []
  const listeners = new Set<() => void>()
  let taken = 0
  let rest = ''
  incoming.setEncoding('utf8')
  incoming.on('data', (text: string) => {
    const parts = (rest + text).split('\n\n')
    rest = parts.pop() ?? ''
    for (const part of parts) {
      const name = /^event: (.*)$/m.exec(part)?.[1]
      if (name === undefined) comments.push(part)
      else seen.push({ name, data: /^data: (.*)$/m.exec(part)?.[1] ?? '' })
    }
    for (const listener of listeners) listener()
  })
  incoming.on('error', () => undefined)
  const ended = new Promise<void>((resolve) => void incoming.once('close', resolve))
  const next = <T>(name: string, fits: (value: T) => boolean): Promise<T> =>
    new Promise((resolve) => {
      const look = (): void => {
        while (taken < seen.length) {
          const event = seen[taken++] as SeenEvent
          const value = JSON.parse(event.data) as T
          if (event.name !== name || !fits(value)) continue
          listeners.delete(look)
          resolve(value)
          return
        }
      }
      listeners.add(look)
      look()
    })
  return {
    incoming,
    seen,
    comments,
    next: <Name extends Tab>(tab: Name, fits: (snapshot: Snapshots[Name]) => boolean = () => true) =>
      next<Snapshots[Name]>(tab, fits),
    trouble: () => next<DatabaseProblem>('trouble', () => true),
    ended,
    leave: () => void incoming.destroy(),
  }
}
