import { request as httpRequest } from 'node:http'
import { afterEach, beforeEach } from 'vitest'
import type { DriverName, Workbench } from '../../tools/server/testing/workbench.ts'
import type { Lockstep } from '../index.ts'
import type { Guard } from './index.ts'

/** What the tests read of a request, in any framework. */
export interface Seen {
  readonly tenant: string
  readonly id: string
}

/** What a handler of the tests answers. */
export interface Reply {
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  readonly json: unknown
}

/** The framework's own response, as a handler changes it before it answers. */
export interface Out {
  status(code: number): void
  append(name: string, value: string): void
  remove(name: string): void
}

/** What an earlier middleware of every site sets on each answer. */
export const BEFORE: readonly (readonly [string, string])[] = [
  ['x-request', 'before'],
  ['x-policy', 'strict'],
  ['set-cookie', 'visit=1'],
]

/** A server in the making: routes `POST <path>/:id`. */
export interface Site<Request> {
  see(request: Request): Seen
  add<Given>(
    path: string,
    guard: Guard<Request, Given>,
    work: (seen: Seen, given: Given, out: Out) => Promise<Reply>,
  ): void
  listen(): Promise<{ readonly url: string; close(): Promise<void> }>
}

export interface PostOptions {
  readonly key?: string
  readonly tenant?: string
  readonly body?: unknown
  /** Instead of `body`, as it is. */
  readonly json?: string
}

/** What each test has: a Lockstep, a server that gets its routes from it, and a client. */
export interface Stage<Request> {
  readonly lockstep: Lockstep
  site: Site<Request>
  readonly url: string
  /** An id that no other test has. */
  fresh(): string
  newSite(): Site<Request>
  listen(): Promise<void>
  post(path: string, options?: PostOptions): Promise<Response>
  rows(text: string): Promise<Record<string, unknown>[]>
}

export function stageFor<Request>(bench: Workbench, driver: DriverName, newSite: () => Site<Request>): Stage<Request> {
  const closing: (() => Promise<void>)[] = []
  let lockstep: Lockstep
  let url = ''
  let ids = 0
  const stage: Stage<Request> = {
    get lockstep() {
      return lockstep
    },
    get url() {
      return url
    },
    site: newSite(),
    newSite,
    fresh: () => `${driver}-${++ids}`,
    async listen() {
      const served = await stage.site.listen()
      url = served.url
      closing.push(() => served.close())
    },
    post: (path, options = {}) =>
      fetch(url + path, { method: 'POST', headers: headersOf(options), body: bodyOf(options) }),
    rows: async (text) => (await bench.admin.query<Record<string, unknown>>(text)).rows,
  }
  beforeEach(() => {
    lockstep = bench.open(driver, { max: 6 }).lockstep
    stage.site = newSite()
  })
  afterEach(async () => {
    for (const close of closing.splice(0)) await close()
  })
  return stage
}

function headersOf({ key: idempotencyKey, tenant = 'acme', body, json }: PostOptions): Record<string, string> {
  return {
    'x-tenant': tenant,
    ...(idempotencyKey !== undefined && { 'idempotency-key': idempotencyKey }),
    ...((body ?? json) !== undefined && { 'content-type': 'application/json' }),
  }
}

function bodyOf({ body, json }: PostOptions): string | null {
  return json ?? (body === undefined ? null : JSON.stringify(body))
}

/** Asks, and hangs up without having read an answer. */
export async function abandon(url: string, options: PostOptions, when: Promise<void>): Promise<void> {
  const asking = httpRequest(url, { method: 'POST', headers: headersOf(options) })
  asking.on('error', () => undefined)
  const gone = new Promise((resolve) => asking.on('close', resolve))
  asking.end()
  await when
  asking.destroy()
  await gone
}
