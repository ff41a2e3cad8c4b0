import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { type LoginSession, Sessions } from './sessions.ts'
import { networkOf } from './loginAttempts.ts'

const TOKEN = 'a token that nobody can guess'
const HOUR_MS = 60 * 60 * 1000
const client = { name: undefined, address: '10.0.0.7' }
const ended: string[] = []
let sessions: Sessions

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance', 'setInterval', 'clearInterval'] })
  ended.length = 0
  sessions = new Sessions({ token: TOKEN, operator: true, people: undefined }, (id) => ended.push(id))
})
afterEach(() => {
  sessions.close()
  vi.useRealTimers()
})

function asking(cookie = ''): Request {
  return new Request('http://localhost/', { headers: { cookie } })
}

async function login(): Promise<string> {
  const opened = await sessions.login(asking(), client, { token: TOKEN, name: 'ada', path: '/', secure: false })
  return opened === 'wrong' || opened === 'later' ? opened : (opened.cookie.split(';', 1)[0] ?? '')
}

async function visit(cookie: string): Promise<LoginSession | undefined> {
  const found = await sessions.visitor(asking(cookie), client)
  return found === 'later' ? undefined : found
}

test('ends a session after twelve hours without use', async () => {
  const [idle, used] = [await login(), await login()]
  const [first, second] = [await visit(idle), await visit(used)]
  expect([first?.name, first?.ended]).toEqual(['ada', false])
  vi.advanceTimersByTime(11 * HOUR_MS)
  await visit(used)
  expect(ended).toEqual([])
  vi.advanceTimersByTime(HOUR_MS + 60_000)
  expect(ended).toEqual([first?.id])
  expect([first?.ended, second?.ended]).toEqual([true, false])
  expect(await visit(idle)).toBeUndefined()
  expect((await visit(used))?.id).toBe(second?.id)
})

test('has no timer without sessions', async () => {
  const cookie = await login()
  expect(vi.getTimerCount()).toBe(1)
  sessions.logout((await visit(cookie)) as LoginSession, '/', false)
  expect(ended).toHaveLength(1)
  vi.advanceTimersByTime(60_000)
  expect(vi.getTimerCount()).toBe(0)
})

test('ends the least recently used of 101', async () => {
  const [first, second] = [await login(), await login()]
  const [one, two] = [await visit(first), await visit(second)]
  await visit(first)
  for (let n = 0; n < 99; n++) await login()
  expect(ended).toEqual([two?.id])
  expect((await visit(first))?.id).toBe(one?.id)
})

test.each([
  ['10.0.0.7', '10.0.0.7'],
  ['::ffff:10.0.0.7', '10.0.0.7'],
  ['2001:db8::1', '2001:db8:0:0'],
  ['2001:DB8:0:0:1:2:3:4', '2001:db8:0:0'],
  ['2001:0db8:0001:0002::', '2001:db8:1:2'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
  ['fe80::1%eth0', 'fe80:0:0:0'],
  ['::1', '0:0:0:0'],
  [undefined, 'unknown'],
])('counts wrong tokens from %s under %s', (address, network) => {
  expect(networkOf(address)).toBe(network)
})
