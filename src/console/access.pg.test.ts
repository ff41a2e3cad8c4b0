import { request } from 'node:http'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { signal, workbench } from '../../tools/server/testing/workbench.ts'
import { InvalidOptionError, key } from '../index.ts'
import { type Answered, type Bench, bench } from './consoleBench.conformance.ts'
import { createConsole } from './index.ts'

const database = await testDatabase()
const work = workbench(database)

const TOKEN = 'a token that nobody can guess'
const RELEASE = { key: 'Instance:1', reason: 'it hangs', terminate: false }

function open(options: Parameters<typeof bench>[1] = {}): Promise<Bench> {
  return bench(work.open('pg').lockstep, { everyMs: 100, ...options })
}

/** What the page sends with a POST, less what a test changes. */
async function headersOf(
  site: Bench,
  changed: Record<string, string | undefined> = {},
): Promise<Record<string, string>> {
  const { cookie } = changed
  const { csrf } = await site.session(cookie === undefined ? {} : { cookie })
  const all = {
    origin: `http://${site.host}`,
    'sec-fetch-site': 'same-origin',
    'content-type': 'application/json',
    'x-lockstep-csrf': csrf,
    ...changed,
  }
  return Object.fromEntries(Object.entries(all).filter((each): each is [string, string] => each[1] !== undefined))
}

async function login(site: Bench, token: unknown, headers: Record<string, string> = {}): Promise<Answered> {
  return site.post('/api/login', { token }, { 'x-lockstep-csrf': 'any', ...headers })
}

/** The first line of the answer to what is sent as it is. */
function rawAnswer(site: Bench, text: string): Promise<string> {
  return new Promise<string>((resolve, reject) => {
    const socket = connect(Number(site.host.split(':')[1]), '127.0.0.1', () => void socket.write(text))
    socket.once('data', (data) => resolve(data.toString('latin1').split('\r\n', 1)[0] ?? ''))
    socket.once('error', reject)
  })
}

function cookieOf({ headers }: Answered): string {
  return String(headers['set-cookie']).split(';', 1)[0] ?? ''
}

test('sends security headers with every answer, and forbids caching of the API', async () => {
  const site = await open()
  for (const path of ['/', '/api/session', '/api/nothing', '/nothing']) {
    const { headers } = await site.ask(path)
    expect(headers['content-security-policy']).toBe(
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    )
    expect(headers['x-content-type-options']).toBe('nosniff')
    expect(headers['referrer-policy']).toBe('no-referrer')
    expect(headers['access-control-allow-origin']).toBeUndefined()
    if (path.startsWith('/api/')) expect(headers['cache-control']).toBe('no-store')
  }
})

test('answers only under loopback names without a token', async () => {
  const site = await open()
  const port = site.host.split(':')[1]
  for (const host of [`localhost:${port}`, '127.0.0.1', '127.3.2.1:80', '[::1]:8400', `console.localhost:${port}`]) {
    expect((await site.ask('/api/session', { headers: { host } })).status, host).toBe(200)
  }
  for (const host of [
    'rebound.example',
    `rebound.example:${port}`,
    '127.0.0.1.rebound.example',
    '10.0.0.7',
    '[fe80::1]',
  ]) {
    for (const path of ['/', '/api/session', '/api/stream?show=locks']) {
      const refused = await site.ask(path, { headers: { host } })
      expect([refused.status, refused.problem().code], host + path).toEqual([403, 'not-from-here'])
    }
  }
})

test.each([
  'forwarded',
  'via',
  'x-real-ip',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-forwarded-port',
  'x-original-uri',
  'cf-connecting-ip',
  'true-client-ip',
])('rejects requests of a proxy without a token: %s', async (name) => {
  const site = await open()
  expect((await site.ask('/api/session')).status).toBe(200)
  for (const path of ['/', '/api/session', '/api/stream?show=locks']) {
    const refused = await site.ask(path, { headers: { [name]: '1' } })
    expect([refused.status, refused.problem().code], path).toEqual([403, 'not-from-here'])
  }
})

test('rejects HTTP/1.0 without a token', async () => {
  const site = await open()
  const answer = async (version: string): Promise<string> =>
    rawAnswer(site, `GET /api/session HTTP/${version}\r\nHost: localhost\r\nConnection: close\r\n\r\n`)
  expect(await answer('1.1')).toBe('HTTP/1.1 200 OK')
  expect(await answer('1.0')).toBe('HTTP/1.1 403 Forbidden')
})

test('rejects operator mode without a token', () => {
  const { lockstep } = work.open('pg')
  expect(() => createConsole(lockstep, { operator: true })).toThrow(/operator is true, and there is no token/)
  expect(() => createConsole(lockstep, { operator: true, token: TOKEN })).not.toThrow()
})

test('rejects a request without a valid host', async () => {
  const site = await open()
  const status = await rawAnswer(site, 'GET /api/session HTTP/1.1\r\nHost: a/b@c\r\nConnection: close\r\n\r\n')
  expect(status).toBe('HTTP/1.1 400 Bad Request')
})

test('rejects reads of another site', async () => {
  const site = await open()
  for (const from of ['cross-site', 'same-site']) {
    const refused = await site.ask('/api/session', { headers: { 'sec-fetch-site': from } })
    expect([refused.status, refused.problem().code]).toEqual([403, 'from-elsewhere'])
  }
  expect((await site.ask('/api/session', { headers: { 'sec-fetch-site': 'same-origin' } })).status).toBe(200)
  expect((await site.ask('/api/session', { headers: { 'sec-fetch-site': 'none' } })).status).toBe(200)
})

test('accepts a POST only from its own page, with the session secret, as short JSON', async () => {
  const site = await open({ operator: true })
  const post = async (changed: Record<string, string | undefined>, body = JSON.stringify(RELEASE)): Promise<Answered> =>
    site.ask('/api/leases/release', { method: 'POST', headers: await headersOf(site, changed), body })
  expect((await post({})).status).toBe(200)
  expect((await post({ origin: undefined })).status).toBe(200)
  expect((await post({ 'sec-fetch-site': undefined })).status).toBe(200)
  expect((await post({ 'content-type': 'application/json; charset=utf-8' })).status).toBe(200)
  const refusals: [Record<string, string | undefined>, number, string][] = [
    [{ origin: 'http://other.example' }, 403, 'from-elsewhere'],
    [{ origin: 'null' }, 403, 'from-elsewhere'],
    [{ origin: `http://${site.host.split(':')[0]}:1` }, 403, 'from-elsewhere'],
    [{ 'sec-fetch-site': 'same-site' }, 403, 'from-elsewhere'],
    [{ origin: undefined, 'sec-fetch-site': undefined }, 403, 'from-elsewhere'],
    [{ 'x-lockstep-csrf': undefined }, 403, 'csrf-wrong'],
    [{ 'x-lockstep-csrf': 'x'.repeat(32) }, 403, 'csrf-wrong'],
    [{ 'content-type': 'text/plain' }, 415, 'not-json'],
    [{ 'content-type': 'application/x-www-form-urlencoded' }, 415, 'not-json'],
    [{ 'content-type': undefined }, 415, 'not-json'],
  ]
  for (const [changed, status, code] of refusals) {
    const refused = await post(changed)
    expect([refused.status, refused.problem().code], JSON.stringify(changed)).toEqual([status, code])
  }
  expect((await post({}, '{"key":')).problem().code).toBe('not-json')
  expect((await post({}, '[]')).problem().code).toBe('not-json')
  const long = JSON.stringify({ ...RELEASE, reason: 'x'.repeat(16 * 1024) })
  expect((await post({}, long)).status).toBe(413)
  // As long, but without saying so beforehand.
  expect((await post({ 'transfer-encoding': 'chunked' }, long)).status).toBe(413)
})

test('changes nothing and shows no payload without the operator flag', async () => {
  const { lockstep } = work.open('pg')
  await using lease = await lockstep.leases.acquire(key`Instance:1`)
  const site = await bench(lockstep)
  expect(await site.session()).toMatchObject({
    operator: false,
    token: false,
    schema: 'lockstep',
    database: database.name,
  })
  const stream = { dispatcher: 'default', topic: 't', key: 'k', reason: 'r', seq: 1 }
  for (const path of ['leases/release', 'outbox/retry', 'outbox/skip', 'outbox/pause', 'outbox/resume']) {
    const refused = await site.post(`/api/${path}`, { ...stream, ...RELEASE })
    expect([refused.status, refused.problem().code], path).toEqual([403, 'operators-only'])
  }
  const payload = await site.ask('/api/outbox/payload?dispatcher=default&topic=t&key=k')
  expect([payload.status, payload.problem().code]).toEqual([403, 'operators-only'])
  lease.assertHeld()
  expect((await lockstep.leases.inspect(key`Instance:1`)).held).toBe(true)
})

test('answers nothing but the page before the token is given', async () => {
  const site = await open({ token: TOKEN, operator: true })
  for (const path of ['session', 'stream?show=locks', 'leases/history?key=A:1', 'outbox/payload', 'nothing']) {
    const refused = await site.ask(`/api/${path}`)
    expect([refused.status, refused.problem().code], path).toEqual([401, 'token-needed'])
  }
  const release = await site.ask('/api/leases/release', { method: 'POST', body: JSON.stringify(RELEASE) })
  expect(release.status).toBe(401)
  expect((await site.ask('/')).status).not.toBe(401)
  // With a token the name does not matter.
  expect((await site.ask('/api/session', { headers: { host: 'console.example' } })).status).toBe(401)
})

test('opens a session by the token, and ends it with its streams on logout', async () => {
  const site = await open({ token: TOKEN })
  const opened = await login(site, TOKEN)
  expect(opened.status).toBe(204)
  expect(String(opened.headers['set-cookie'])).toMatch(
    /^lockstep_console=[\w-]{32}; Path=\/; HttpOnly; SameSite=Strict$/,
  )
  const [cookie, other] = [cookieOf(opened), cookieOf(await login(site, TOKEN))]
  expect(cookie).not.toBe(other)
  const { csrf, token } = await site.session({ cookie })
  expect(token).toBe(true)
  expect((await site.session({ cookie: other })).csrf).not.toBe(csrf)
  const [stream, kept] = [await site.stream('locks', { cookie }), await site.stream('locks', { cookie: other })]
  await Promise.all([stream.next('locks'), kept.next('locks')])
  const asOther = await site.post('/api/logout', {}, { cookie: other, 'x-lockstep-csrf': csrf })
  expect(asOther.problem().code).toBe('csrf-wrong')
  const out = await site.post('/api/logout', {}, { cookie })
  expect(out.status).toBe(204)
  expect(String(out.headers['set-cookie'])).toContain('Max-Age=0')
  await stream.ended
  expect((await site.ask('/api/session', { headers: { cookie } })).status).toBe(401)
  expect((await site.session({ cookie: other })).token).toBe(true)
})

test('limits the cookie to TLS and to the path of the mount', async () => {
  const site = await open({ token: TOKEN, base: '/console' })
  const opened = await login(site, TOKEN, { 'x-forwarded-proto': 'https' })
  expect(String(opened.headers['set-cookie'])).toMatch(/; Path=\/console\/; HttpOnly; SameSite=Strict; Secure$/)
})

test('accepts the token with every request', async () => {
  const site = await open({ token: TOKEN.replaceAll(' ', '-') })
  const authorization = `Bearer ${TOKEN.replaceAll(' ', '-')}`
  expect((await site.session({ authorization })).token).toBe(true)
  const wrong = await site.ask('/api/session', { headers: { authorization: `${authorization}x` } })
  expect(wrong.status).toBe(401)
})

test('delays wrong tokens, and rejects too many at once', async () => {
  const site = await open({ token: TOKEN })
  const from = performance.now()
  const refused = await login(site, `${TOKEN}x`)
  expect(refused.problem().code).toBe('token-wrong')
  // A timer may come up to a millisecond early.
  expect(performance.now() - from).toBeGreaterThanOrEqual(499)
  expect((await login(site, undefined)).status).toBe(401)
  const many = await Promise.all(Array.from({ length: 30 }, () => login(site, 'guess')))
  const statuses = many.map(({ status }) => status)
  // Ten at once are looked at; how many come while those wait is the machine's affair.
  expect(statuses.filter((status) => status === 401).length).toBeGreaterThanOrEqual(10)
  expect(statuses.filter((status) => status === 429).length).toBeGreaterThanOrEqual(1)
  expect((await login(site, TOKEN)).status).toBe(204)
})

test('does not lock out others when one address guesses', async () => {
  const site = await open({ token: TOKEN })
  const cookie = cookieOf(await login(site, TOKEN))
  const from = (address: string, headers: Record<string, string> = {}, token: unknown = TOKEN): Promise<Answered> =>
    site.ask('/api/login', {
      method: 'POST',
      headers: {
        origin: `http://${site.host}`,
        'content-type': 'application/json',
        'x-lockstep-csrf': 'any',
        ...headers,
      },
      body: JSON.stringify({ token }),
      from: address,
    })
  const over = new AbortController()
  const seen: number[] = []
  const full = signal()
  const guess = async (): Promise<void> => {
    while (!over.signal.aborted) {
      const { status } = await from('127.0.0.2', {}, 'a guess')
      seen.push(status)
      if (status !== 429) continue
      full.give()
      // Otherwise they would keep this process, which is the server as well, from everything else.
      await sleep(20)
    }
  }
  const guessing = Array.from({ length: 20 }, guess)
  // That address has as many wrong ones open as it may, and continues.
  await full.given
  for (let n = 0; n < 40; n++) {
    expect((await from('127.0.0.3')).status).toBe(204)
    expect((await from('127.0.0.2', { cookie })).status).toBe(204)
    expect((await site.ask('/api/session', { headers: { cookie }, from: '127.0.0.2' })).status).toBe(200)
  }
  over.abort()
  await Promise.all(guessing)
  expect(new Set(seen)).toEqual(new Set([401, 429]))
})

test('ends the streams of a session that is replaced', async () => {
  const site = await open({ token: TOKEN })
  const cookie = cookieOf(await login(site, TOKEN))
  const stream = await site.stream('locks', { cookie })
  await stream.next('locks')
  const others: string[] = []
  for (let n = 0; n < 100; n++) others.push(cookieOf(await login(site, TOKEN)))
  await stream.ended
  expect((await site.ask('/api/session', { headers: { cookie } })).status).toBe(401)
  expect((await site.ask('/api/session', { headers: { cookie: others[0] as string } })).status).toBe(200)
})

test('rejects a change whose body comes after the end of the session', async () => {
  const { lockstep } = work.open('pg')
  await using lease = await lockstep.leases.acquire(key`Instance:1`)
  const site = await bench(lockstep, { operator: true, token: TOKEN })
  const cookie = cookieOf(await login(site, TOKEN))
  const headers = await headersOf(site, { cookie })
  const body = JSON.stringify(RELEASE)
  const answer = new Promise<number | undefined>((resolve, reject) => {
    const [host, port] = site.host.split(':')
    const sent = request({ host, port, path: '/api/leases/release', method: 'POST', headers }, (incoming) => {
      incoming.resume()
      resolve(incoming.statusCode)
    })
    sent.on('error', reject)
    sent.write(body.slice(0, 5))
    // Its head is at the server, which has found the session, before the same server has logged it out.
    site
      .post('/api/logout', {}, { cookie })
      .then(() => sent.end(body.slice(5)))
      .catch(reject)
  })
  expect(await answer).toBe(401)
  lease.assertHeld()
  expect((await lockstep.leases.inspect(key`Instance:1`)).held).toBe(true)
})

test('takes user and address from the mount behind a proxy', async () => {
  const identify = ({ headers }: Request): { address: string | null } => ({ address: headers.get('x-client') })
  const site = await open({ token: TOKEN, identify })
  const guesses = await Promise.all(
    Array.from({ length: 30 }, () => login(site, 'a guess', { 'x-client': '2001:db8:1:2::5' })),
  )
  expect(guesses.map(({ status }) => status)).toContain(429)
  const others = Array.from({ length: 30 }, (_, n) => login(site, 'a guess', { 'x-client': `2001:db8:1:2::${n}` }))
  expect((await login(site, TOKEN, { 'x-client': '2001:db8:1:3::5' })).status).toBe(204)
  // A guesser with one address of a network has all of them.
  expect((await Promise.all(others)).map(({ status }) => status)).toContain(429)
  const looks = await open({ identify })
  expect((await looks.ask('/api/session', { headers: { 'x-client': '127.0.0.1' } })).status).toBe(200)
  expect((await looks.ask('/api/session', { headers: { 'x-client': '10.0.0.7' } })).status).toBe(403)
})

test('accepts a login only from its own page, and none without a token', async () => {
  const site = await open({ token: TOKEN })
  expect((await login(site, TOKEN, { origin: 'http://other.example' })).problem().code).toBe('from-elsewhere')
  expect((await login(site, TOKEN, { 'x-lockstep-csrf': '' })).problem().code).toBe('csrf-wrong')
  expect((await site.ask('/api/login')).status).toBe(405)
  expect((await login(await open(), TOKEN)).problem().code).toBe('no-token')
})

test('answers 404 and 405', async () => {
  const site = await open({ base: '/console/', operator: true })
  // A path that ends with a slash would not do: Next.js redirects from there back to the one without.
  expect((await site.ask('/console')).headers['location']).toBe('/console/index.html')
  for (const path of ['/', '/consoles/', '/console/nothing', '/console/api/nothing', '/console/../../package.json']) {
    expect((await site.ask(path)).status, path).toBe(404)
  }
  expect((await site.ask('/console/', { method: 'DELETE' })).status).toBe(405)
  expect((await site.ask('/console/api/leases/release')).headers['allow']).toBe('POST')
  expect((await site.ask('/console/api/session', { method: 'POST' })).headers['allow']).toBe('GET')
  for (const path of [
    'stream',
    'stream?show=',
    'stream?show=locks,nothing',
    'leases/history',
    'outbox/payload?topic=a',
  ]) {
    expect((await site.ask(`/console/api/${path}`)).status, path).toBe(400)
  }
})

test('works by fetch, and reports that it is closed', async () => {
  const site = createConsole(work.open('pg').lockstep, { base: '/console' })
  const ask = (path: string, host = 'localhost:3000'): Promise<Response> =>
    site.fetch(new Request(`http://${host}${path}`))
  expect(await (await ask('/console/api/session')).json()).toMatchObject({ schema: 'lockstep', operator: false })
  expect((await ask('/console/api/session', 'rebound.example')).status).toBe(403)
  expect((await ask('/elsewhere')).status).toBe(404)
  await site.close()
  expect((await ask('/console/api/session')).status).toBe(503)
})

test.each([
  { token: 'too short' },
  { token: 7 as unknown as string },
  { base: 'console' },
  { base: '/a/../b' },
  { base: '/a; Path=/' },
  { everyMs: 0 },
  { everyMs: Number.NaN },
  { share: 0 },
  { share: 2 },
  { operator: 'yes' as unknown as boolean },
  { identify: 'x-real-ip' as unknown as () => undefined },
  { base: '' },
  { base: '//' },
  { base: '/a//b' },
  { base: `/${'a'.repeat(1000)}` },
])('rejects %j', (options) => {
  expect(() => createConsole(work.open('pg').lockstep, options)).toThrow(InvalidOptionError)
})
