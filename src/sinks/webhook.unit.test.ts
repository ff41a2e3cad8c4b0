import { once } from 'node:events'
import { type AddressInfo, createServer as createTcpServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { signal } from '../../tools/server/testing/workbench.ts'
import type { Delivery, Sink } from '../outbox/index.ts'
import { isPublicAddress } from './publicAddress.ts'
import { contextOf, eventOf, eventsOf } from './sinkBench.conformance.ts'
import { verifyWebhook, type WebhookOptions, webhookSink } from './webhook.ts'
import {
  newSecret,
  reasonOf,
  receiver,
  SECRET,
  send,
  sendOne,
  sinkTo,
  type Taken,
} from './webhookReceiver.conformance.ts'

describe('what an answer means', () => {
  const cases: readonly [number, string][] = [
    [200, 'sent'],
    [202, 'sent'],
    [204, 'sent'],
    ...[400, 401, 403, 404, 405, 409, 410, 413, 422, 451].map((status): [number, string] => [status, 'refused']),
    ...[408, 425, 429, 500, 501, 502, 503, 504, 599].map((status): [number, string] => [status, 'unknown']),
    ...[300, 301, 302, 303, 304].map((status): [number, string] => [status, 'unknown']),
  ]
  test.each(cases)('%i: %s', async (status, kind) => {
    const { url } = await receiver(
      (_, response) => void response.writeHead(status).end(status === 204 ? '' : 'why\r\n!'),
    )
    const answer = await sendOne(sinkTo(url))
    expect(answer === 'sent' ? answer : Object.keys(answer)[0]).toBe(kind)
    if (kind === 'refused')
      expect(reasonOf(answer)).toMatch(new RegExp(`127.0.0.1:\\d+ answered ${status} .* to #1 of t/k: why !$`))
  })

  test('closes a connection whose body does not end', async () => {
    const { url, server } = await receiver((_, response) => {
      response.writeHead(200)
      response.write('x')
    })
    const sink = sinkTo(url, { timeoutMs: 1000 })
    expect(await sendOne(sink)).toBe('sent')
    const connections = (): Promise<number> =>
      new Promise((resolve) => server.getConnections((_, count) => resolve(count)))
    while ((await connections()) > 0) await sleep(10)
  })

  test.each([200, 500])('stops reading a body without end: %i', async (status) => {
    let closed = false
    const { url } = await receiver((_, response) => {
      response.writeHead(status).on('close', () => (closed = true))
      const more = (): void => {
        if (response.destroyed) return
        response.write(Buffer.alloc(65_536))
      }
      response.on('drain', more).on('error', () => undefined)
      more()
    })
    const answer = await sendOne(sinkTo(url))
    expect(answer === 'sent').toBe(status === 200)
    await expect.poll(() => closed).toBe(true)
  })

  test('reuses connections after errors', async () => {
    const { url, sockets } = await receiver((_, response) => void response.writeHead(500).end('x'.repeat(20_000)))
    const sink = sinkTo(url)
    for (let round = 0; round < 5; round++) await sendOne(sink)
    expect(sockets()).toBe(1)
  })

  test('obeys Retry-After in seconds or as a time, for the whole host', async () => {
    let header: Record<string, string> = { 'retry-after': '7' }
    const { url, taken } = await receiver((_, response) => void response.writeHead(503, header).end())
    expect(await sendOne(sinkTo(url))).toMatchObject({ retryAfterMs: 7000 })
    header = { date: 'Tue, 01 Jan 2030 00:00:00 GMT', 'retry-after': 'Tue, 01 Jan 2030 00:01:30 GMT' }
    const sink = sinkTo(url)
    expect(await sendOne(sink)).toMatchObject({ retryAfterMs: 90_000 })
    const before = taken.length
    const answers = await sink.send(eventsOf('t', ['a', 'b'], 2), contextOf())
    expect(taken.length).toBe(before)
    expect(answers[0]).toMatchObject({ unknown: expect.stringContaining('left alone') as string })
    expect((answers[0] as { retryAfterMs: number }).retryAfterMs).toBeGreaterThan(80_000)
    header = { 'retry-after': 'soon' }
    expect(await sendOne(sinkTo(url))).not.toHaveProperty('retryAfterMs')
  })

  // Date.parse() takes the first three for years to come.
  test.each(['-3600', '+3600', '3600.5', '-5', '0', 'NaN', '99999999999', 'Tue, 01 Jan 1980 00:00:00 GMT'])(
    'ignores Retry-After: %s',
    async (value) => {
      const { url, taken } = await receiver(
        (_, response) => void response.writeHead(503, { 'retry-after': value }).end(),
      )
      const sink = sinkTo(url)
      expect(await sendOne(sink)).not.toHaveProperty('retryAfterMs')
      await sendOne(sink)
      expect(taken.length).toBe(2)
    },
  )

  test('delays only the receiver that asks for it', async () => {
    const [busy, other] = [
      await receiver((_, response) => void response.writeHead(429, { 'retry-after': '86400' }).end()),
      await receiver(),
    ]
    const sink = sinkTo(({ key }) => (key === 'busy' ? busy.url : other.url), { allowPrivateAddresses: true })
    for (const seq of [1, 2]) {
      const answer = await sendOne(sink, eventOf('t', 'busy', seq))
      expect(answer).toHaveProperty('unknown')
      expect(answer).not.toHaveProperty('retryAfterMs')
    }
    expect(await sendOne(sink, eventOf('t', 'other', 1))).toBe('sent')
    expect(busy.taken.length).toBe(1)
  })

  test('escapes control characters of an answer', async () => {
    const raw = createTcpServer((socket) => {
      socket.on('error', () => undefined)
      socket.once('data', () =>
        socket.end(
          Buffer.from('HTTP/1.1 302 a\x1b[2Jb\x9bc\r\nlocation: /d\x9b2J\r\ncontent-length: 3\r\n\r\ne\x1bf', 'latin1'),
        ),
      )
    })
    await once(raw.listen(0, '127.0.0.1'), 'listening')
    try {
      const answer = await sendOne(sinkTo(`http://127.0.0.1:${(raw.address() as AddressInfo).port}/`))
      expect(reasonOf(answer)).toContain('answered 302 a [2Jb c, to /d 2J,')
    } finally {
      raw.close()
    }
  })
})

describe('targets of a request', () => {
  test('keeps the POST and its signature over 307 and 308 within the origin', async () => {
    const { url, taken } = await receiver(({ path }, response) => {
      if (path === '/hook') response.writeHead(308, { location: '/moved' }).end()
      else if (path === '/moved') response.writeHead(307, { location: '/again?x=1' }).end()
      else response.writeHead(204).end()
    })
    expect(await sendOne(sinkTo(url))).toBe('sent')
    expect(taken.map(({ path }) => path)).toEqual(['/hook', '/moved', '/again?x=1'])
    const [, , last] = taken as [Taken, Taken, Taken]
    expect(verifyWebhook(last.headers, last.body, SECRET).seq).toBe(1)
  })

  test('stops at a redirect loop', async () => {
    const { url, taken } = await receiver((_, response) => void response.writeHead(307, { location: '/hook' }).end())
    expect(Object.keys(await sendOne(sinkTo(url)))).toContain('unknown')
    expect(taken.length).toBe(4)
  })

  test('sends nothing to another origin that was not allowed', async () => {
    const other = await receiver()
    const { url } = await receiver((_, response) => void response.writeHead(307, { location: other.url }).end())
    const answer = await sendOne(sinkTo(url))
    expect(reasonOf(answer)).toContain(`to ${other.url}`)
    expect(other.taken).toEqual([])
    expect(await sendOne(sinkTo(url, { redirectOrigins: [new URL(other.url).origin] }))).toBe('sent')
    expect(other.taken.length).toBe(1)
  })

  test('rejects private addresses of a URL from a function', async () => {
    const { url, taken, sockets } = await receiver()
    const { port } = new URL(url)
    const hosts = ['127.0.0.1', 'localhost', '127.1', '0x7f.1', '2130706433', '0.0.0.0', '[::1]', '[::ffff:127.0.0.1]']
    for (const host of [...hosts, '169.254.169.254', '10.0.0.1', '[fd00::1]', '[fe80::1]', '[64:ff9b::7f00:1]']) {
      const answer = await sendOne(sinkTo(() => `http://${host}:${port}/hook`))
      expect(answer, host).toHaveProperty('refused')
      expect(reasonOf(answer)).toContain('allowPrivateAddresses')
    }
    expect([taken.length, sockets()]).toEqual([0, 0])
    expect(await sendOne(sinkTo(() => url, { allowPrivateAddresses: true }))).toBe('sent')
  })

  test('distinguishes public from other addresses', () => {
    const open = [
      '1.1.1.1',
      '93.184.216.34',
      '172.15.0.1',
      '172.32.0.1',
      '100.128.0.1',
      '2606:4700::1111',
      '2a00:1450::1',
    ]
    const hidden = ['0.0.0.0', '10.1.2.3', '100.64.0.1', '127.9.9.9', '169.254.0.1', '172.16.0.1', '172.31.255.255']
    hidden.push('192.168.1.1', '198.18.0.1', '224.0.0.1', '255.255.255.255', '::', '::1', '::ffff:1.1.1.1', 'fc00::1')
    hidden.push(
      'fe80::1',
      'ff02::1',
      '2002:7f00:1::',
      '2001:0:1::',
      '2001:db8::1',
      '64:ff9b::a00:1',
      'books.example.com',
    )
    expect(open.filter((address) => !isPublicAddress(address))).toEqual([])
    expect(hidden.filter(isPublicAddress)).toEqual([])
  })

  test('uses a secret per receiver, and stops only streams without a usable URL', async () => {
    const [one, two] = [await receiver(), await receiver()]
    const secrets: Record<string, string> = { one: newSecret(), two: newSecret() }
    const sink = sinkTo(
      async ({ key }) => {
        await sleep(1)
        if (key === 'fails') throw new Error('no such customer')
        if (key === 'ftp') return 'ftp://example.com'
        if (key === 'slow') return new Promise(() => undefined)
        return { url: key === 'one' ? one.url : two.url, secret: secrets[key] as string }
      },
      { allowPrivateAddresses: true, timeoutMs: 1000 },
    )
    const answers = await send(sink, ...['one', 'two', 'fails', 'ftp', 'slow'].map((key) => eventOf('t', key, 1)))
    expect(answers.map((answer) => (answer === 'sent' ? answer : Object.keys(answer)[0]))).toEqual([
      'sent',
      'sent',
      'failed',
      'refused',
      'failed',
    ])
    for (const [name, { taken }] of Object.entries({ one, two })) {
      const [request] = taken as [Taken]
      expect(verifyWebhook(request.headers, request.body, secrets[name] as string).key).toBe(name)
    }
  })
})

describe('many requests', () => {
  test('limits requests to a host to `concurrency`', async () => {
    let [active, most] = [0, 0]
    const { url } = await receiver((_, response) => {
      most = Math.max(most, ++active)
      setTimeout(() => {
        active--
        response.writeHead(204).end()
      }, 5)
    })
    const sink = sinkTo(url, { concurrency: 3 })
    const keys = Array.from({ length: 12 }, (_, index) => `k${index}`)
    await Promise.all(['t', 'u'].map((topic) => sink.send(eventsOf(topic, keys, 3), contextOf())))
    expect([most, active]).toEqual([3, 0])
  })

  test('sends few requests of a batch to a silent host', async () => {
    const silent = await receiver(() => undefined)
    const { url, taken } = await receiver()
    const sink = sinkTo(({ key }) => (key.startsWith('silent') ? silent.url : url), {
      allowPrivateAddresses: true,
      concurrency: 2,
      timeoutMs: 1000,
    })
    const keys = Array.from({ length: 20 }, (_, index) => (index % 2 === 0 ? `silent${index}` : `k${index}`))
    const answers = await sink.send(eventsOf('t', keys, 2), contextOf())
    expect(silent.taken.length).toBeLessThanOrEqual(3)
    expect(taken.length).toBe(20)
    expect(answers.filter((answer) => answer === 'sent').length).toBe(20)
    expect(answers.filter((answer) => typeof answer === 'object' && !('unknown' in answer))).toEqual([])
  })

  test('does not fail when the receiver closes an idle connection', async () => {
    const seen = new WeakSet<object>()
    const { url, taken } = await receiver((_, response, message) => {
      if (seen.has(message.socket)) message.socket.resetAndDestroy()
      else response.writeHead(204).end()
      seen.add(message.socket)
    })
    const sink = sinkTo(url)
    expect(await sendOne(sink)).toBe('sent')
    expect(await sendOne(sink, eventOf('t', 'k', 2))).toBe('sent')
    expect(taken.length).toBe(3)
  })

  test('starts nothing in a process that was stopped past its lease', async () => {
    let owned = true
    const { url, taken } = await receiver((_, response) => {
      owned = false
      response.writeHead(204).end()
    })
    const context = contextOf({ owned: () => owned })
    const answers = await sinkTo(url, { concurrency: 1 }).send(eventsOf('t', ['a', 'b'], 2), context)
    expect(taken.length).toBe(1)
    expect(answers.filter((answer) => answer === 'sent').length).toBe(1)
  })

  test('starts nothing after an abort, and answers what was begun', async () => {
    const lost = new AbortController()
    const { url, taken } = await receiver((_, response) => {
      lost.abort()
      response.writeHead(204).end()
    })
    const events = eventsOf('t', ['a', 'b', 'c'], 3)
    const answers = await sinkTo(url, { concurrency: 2 }).send(events, contextOf({ signal: lost.signal }))
    expect(taken.length).toBe(2)
    expect(answers.filter((answer) => answer === 'sent').length).toBe(2)
  })
})

describe('invalid input', () => {
  test.each([
    ['a line break', { note: 'a\r\nx-evil: 1' }],
    ['what is not ASCII', { note: 'Größe' }],
    ['a name that is none', { 'no te': 'x' }],
    ['framing', { 'Transfer-Encoding': 'chunked' }],
    ['a length', { 'content-length': '3' }],
    ['a host', { Host: 'elsewhere' }],
  ])('refuses headers that HTTP cannot carry: %s', async (_, headers) => {
    const { url, taken } = await receiver()
    const answer = await sendOne(sinkTo(url), eventOf('t', 'k', 1, { headers }))
    expect(answer).toHaveProperty('refused')
    expect(reasonOf(answer)).toMatch(/^#1 of t\/k cannot be sent: /)
    expect(taken).toEqual([])
  })

  test('rejects invalid options, without showing a secret', () => {
    const url = 'https://books.example.com/events'
    const wrong: [object, string][] = [
      [{}, 'no url'],
      [{ url }, 'no secret'],
      [{ url, secret: [] }, 'no secret'],
      [{ url, secret: 'hunter2hunter2' }, 'whsec_'],
      [{ url, secret: 'whsec_hunter2' }, '24 to 64 bytes'],
      [{ url, secret: `${SECRET}!` }, '24 to 64 bytes'],
      [{ url: 'ftp://books.example.com', secret: SECRET }, 'http or https'],
      [{ url: 'https://me:hunter2@books.example.com', secret: SECRET }, 'password'],
      [{ url, secret: SECRET, headers: { 'Webhook-Id': 'x' } }, 'set by the sink'],
      [{ url, secret: SECRET, headers: { authorization: 'hunter2\n' } }, 'ASCII'],
      [{ url, secret: SECRET, concurrency: 0 }, 'concurrency is 0'],
      [{ url, secret: SECRET, timeoutMs: 1.5 }, 'timeoutMs is 1.5'],
      [{ url, secret: SECRET, maxEventBytes: -1 }, 'maxEventBytes is -1'],
      [{ url, secret: SECRET, redirectOrigins: ['nowhere'] }, 'http or https'],
    ]
    for (const [options, message] of wrong) {
      let error: unknown
      try {
        webhookSink(options as WebhookOptions)
      } catch (thrown) {
        error = thrown
      }
      expect(error).toMatchObject({ code: 'LOCKSTEP_INVALID_OPTION' })
      expect((error as Error).message).toContain(message)
      expect((error as Error).message).not.toContain('hunter2')
      expect((error as Error).message).not.toContain(SECRET.slice(6))
    }
  })
})

describe('a slow host', () => {
  /** Time enough for a request on a busy machine. */
  const hurried = { slowAfterMs: 2000 }
  const kindsOf = (answers: readonly Delivery[]): string[] =>
    answers.map((answer) => (typeof answer === 'object' ? (Object.keys(answer)[0] as string) : answer))

  /** Two customers: one answers when the test says so, the other at once. */
  async function customers(): Promise<{
    readonly sink: Sink
    readonly slow: Taken[]
    readonly other: Taken[]
    readonly answer: () => void
  }> {
    const held = signal()
    const slow = await receiver((_, response) => void held.given.then(() => response.writeHead(204).end()))
    const other = await receiver()
    const sink = sinkTo(({ key }) => (key.startsWith('slow') ? slow.url : other.url), {
      allowPrivateAddresses: true,
      timeoutMs: 60_000,
      concurrency: 2,
    })
    return { sink, slow: slow.taken, other: other.taken, answer: () => held.give() }
  }

  test('does not delay other hosts, and starts no request after the time of its stream', async () => {
    const { sink, slow, other, answer } = await customers()
    const events = eventsOf('t', ['slow1', 'slow2', 'slow3', 'a'], 1)
    const answers = await sink.send(events, contextOf(hurried))
    expect(kindsOf(answers)).toEqual(['slow', 'slow', 'slow', 'sent'])
    expect(reasonOf(answers[2] as Delivery)).toContain('it has not begun')
    expect([slow.length, other.length]).toEqual([2, 1])
    // Another stream of the host is parked without a try.
    expect(kindsOf(await sink.send(eventsOf('t', ['slow4', 'b'], 1), contextOf(hurried)))).toEqual(['slow', 'sent'])
    expect(slow.length).toBe(2)
    answer()
    const again = contextOf({ beside: true })
    expect(kindsOf(await sink.send(events.slice(0, 3), again))).toEqual(['sent', 'sent', 'sent'])
    expect(slow.map(({ headers }) => String(headers['lockstep-key'])).toSorted()).toEqual(['slow1', 'slow2', 'slow3'])
  })

  test('is waited for on close()', async () => {
    const { sink, slow, answer } = await customers()
    await sink.open?.()
    const answers = await sink.send(eventsOf('t', ['slow'], 1), contextOf({ slowAfterMs: 10 }))
    expect(kindsOf(answers)).toEqual(['slow'])
    while (slow.length === 0) await sleep(5)
    let closed = false
    const closing = sink.close?.().then(() => (closed = true))
    await new Promise(setImmediate)
    expect([slow.length, closed]).toEqual([1, false])
    answer()
    await closing
  })
})
