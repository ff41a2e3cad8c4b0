import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { finished, Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import express, { type Request, type Response as ExpressResponse } from 'express'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { type Answer, expressHandler, type Guard } from './index.ts'

/** Guards without a database: what the handler for Express does with a response, and when. */

const servers: Server[] = []
afterEach(() => {
  vi.useRealTimers()
  for (const server of servers.splice(0)) {
    server.closeAllConnections()
    server.close()
  }
})

type Out = ExpressResponse
type Work = (out: Out, attempt: number) => unknown

interface Trial {
  /** In the order in which they came about. */
  readonly events: string[]
  readonly stored: (Answer | undefined)[]
  /** The first of several attempts fails. */
  readonly attempts?: number
  readonly wholeUpTo?: number | undefined
  readonly verdict?: Answer
}

function guardOf({ attempts = 1, wholeUpTo, verdict, events, stored }: Trial): Guard<Request, number> {
  return {
    wholeUpTo,
    async handle(_incoming, work) {
      for (let attempt = 1; attempt < attempts; attempt++) await work(attempt)
      const draft = await work(attempts)
      if (wholeUpTo !== undefined) stored.push(await draft.whole())
      events.push('released')
      return verdict ?? 'own'
    },
  }
}

function trial(options: Omit<Trial, 'events' | 'stored'> = {}): Trial {
  return { events: [], stored: [], ...options }
}

async function post(given: Trial, work: Work): Promise<Response> {
  const app = express()
  app.use((_request, response, next) => {
    response.append('set-cookie', 'visit=1')
    response.on('finish', () => given.events.push('sent'))
    next()
  })
  app.post(
    '/',
    expressHandler(guardOf(given), async (_request, response: Out, attempt) => work(response, attempt)),
  )
  app.use((error: Error, _request: Request, response: Out, _next: () => void) => {
    response.status(500).send(error.message)
  })
  const server = createServer(app)
  servers.push(server)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, { method: 'POST' })
  await expect.poll(() => given.events).toContain('sent')
  return response
}

const GUARDS = [
  ['that streams', { wholeUpTo: undefined }],
  ['that stores', { wholeUpTo: 1000 }],
] as const

describe.each(GUARDS)('under a guard %s', (_name, options) => {
  test('calls a listener for finish once, after the work and the answer', async () => {
    const given = trial(options)
    const response = await post(given, async (out) => {
      out.on('finish', () => given.events.push('heard'))
      out.json('done')
      await new Promise(setImmediate)
      given.events.push('worked')
    })
    expect([response.status, await response.json()]).toEqual([200, 'done'])
    expect(given.events).toEqual(['worked', 'released', 'sent', 'heard'])
  })

  test('calls stream.finished() and a callback of end() once, after the work and the answer', async () => {
    const given = trial(options)
    const response = await post(given, (out) => {
      finished(out, () => given.events.push('finished'))
      out.end('done', () => given.events.push('called'))
    })
    expect(await response.text()).toBe('done')
    await expect.poll(() => given.events).toHaveLength(4)
    expect(given.events[0]).toBe('released')
    expect(given.events.toSorted()).toEqual(['called', 'finished', 'released', 'sent'])
  })

  test('calls no listener of a discarded attempt, and leaves nothing of it', async () => {
    const given = trial({ ...options, attempts: 2 })
    const response = await post(given, (out, attempt) => {
      out.on('finish', () => given.events.push(`heard ${attempt}`))
      if (attempt === 1) out.status(202).location('/first').cookie('first', '1')
      out.end(`attempt ${attempt}`, () => given.events.push(`called ${attempt}`))
    })
    expect([response.status, await response.text()]).toEqual([200, 'attempt 2'])
    expect(response.headers.get('location')).toBeNull()
    expect(response.headers.getSetCookie()).toEqual(['visit=1'])
    await expect.poll(() => given.events).toHaveLength(4)
    expect(given.events.filter((each) => each.endsWith('1'))).toEqual([])
  })

  test('ignores what is set after the end', async () => {
    const response = await post(trial(options), (out) => {
      out.status(201).json('first')
      out.status(500).set('x-late', 'yes').json('second')
    })
    expect([response.status, await response.json()]).toEqual([201, 'first'])
    expect(response.headers.get('x-late')).toBeNull()
  })

  test('sends the head of writeHead() instead of what was set before', async () => {
    const response = await post(trial(options), (out) => {
      out.set('x-old', 'old').set('x-both', 'old')
      out.writeHead(201, 'Made', ['x-both', 'a', 'x-both', 'b'])
      out.end('done')
    })
    expect([response.status, response.statusText, await response.text()]).toEqual([201, 'Made', 'done'])
    expect(response.headers.get('x-both')).toBe('a, b')
    expect(response.headers.get('x-old')).toBe('old')
  })

  test('replaces a head that was only written by another answer', async () => {
    const verdict: Answer = {
      status: 503,
      headers: [
        ['content-security-policy', "default-src 'none'"],
        ['content-security-policy', "img-src 'self'"],
      ],
      body: Buffer.from('lost'),
    }
    const response = await post(trial({ ...options, verdict }), (out) => {
      out.writeHead(200, { 'x-done': 'yes' }).end('done')
    })
    expect([response.status, await response.text()]).toEqual([503, 'lost'])
    expect(response.headers.get('x-done')).toBeNull()
    expect(response.headers.get('content-security-policy')).toBe("default-src 'none', img-src 'self'")
    expect(response.headers.getSetCookie()).toEqual(['visit=1'])
  })

  test('sends a file', async () => {
    const stores = options.wholeUpTo !== undefined
    const given = trial(stores ? { wholeUpTo: 100_000, attempts: 2 } : {})
    const response = await post(
      given,
      (out) =>
        new Promise<void>((resolve, reject) => {
          out.sendFile(import.meta.filename, (error) => (error === undefined ? resolve() : reject(error)))
        }),
    )
    const text = await response.text()
    expect(text).toContain('sends a file')
    if (stores) expect(String(given.stored[0]?.body)).toBe(text)
  })
})

/** A handler that waits for the end of its own answer would wait forever. */
const WAITS: readonly (readonly [string, Work])[] = [
  ['pipeline()', (out) => pipeline(Readable.from(['do', 'ne']), out)],
  ['pipeline() of an iterable', (out) => pipeline(['do', 'ne'], out)],
  ['a promise of finish', (out) => new Promise<void>((resolve) => out.once('finish', resolve).end('done'))],
  ['a promise of end()', (out) => new Promise<void>((resolve) => out.end('done', resolve))],
  ['events.once()', (out) => (setImmediate(() => out.end('done')), once(out, 'finish'))],
]

describe.each(WAITS)('a handler that waits for itself, %s', (_name, work) => {
  test('passes if the answer can be streamed', async () => {
    const response = await post(trial(), work)
    expect([response.status, await response.text()]).toEqual([200, 'done'])
  })

  test('is an error if the answer is stored', async () => {
    const response = await post(trial({ wholeUpTo: 1000 }), work)
    expect([response.status, await response.text()]).toEqual([500, expect.stringContaining('waits for its own')])
  })
})

describe('a handler that can be waiting for itself', () => {
  const hidden: Work = (out) => new Promise<void>((resolve) => out.on('finish', () => resolve()).end('done'))

  test.each(GUARDS)('does not wait forever under a guard %s', async (_name, options) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const answering = post(trial(options), async (out) => {
      const pending = hidden(out, 1)
      await vi.advanceTimersByTimeAsync(60_000)
      await pending
    })
    // The clock of the test runner is the fake one, too.
    const response = await answering
    expect(response.status).toBe(options === GUARDS[0][1] ? 200 : 500)
  })
})

test('sends the end of a stream after the work', async () => {
  const given = trial()
  const response = await post(given, (out) => {
    out.write('do')
    out.end('ne')
    given.events.push('ended')
  })
  expect(await response.text()).toBe('done')
  expect(given.events).toEqual(['ended', 'released', 'sent'])
})
