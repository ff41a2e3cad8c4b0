import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { workbench } from '../../tools/server/testing/workbench.ts'
import { InvalidOptionError, key } from '../index.ts'
import { type Bench, bench } from './consoleBench.conformance.ts'
import { type ConsoleOptions, createConsole, type KnownPerson } from './index.ts'
import type { AuditList } from './wire.ts'

/** Who may see and who may act: a token for each person, and the service's own authentication. */

const database = await testDatabase()
const work = workbench(database)

const TOKENS = { ada: 'the token of Ada, quite long', bob: 'the token of Bob, quite long' }
const PEOPLE = [
  { name: 'Ada', role: 'operator', token: TOKENS.ada },
  { name: 'Bob', role: 'viewer', sha256: createHash('sha256').update(TOKENS.bob).digest('hex') },
] as const

async function login(site: Bench, token: string, name?: string): Promise<string> {
  const { status, headers } = await site.post('/api/login', { token, name }, { 'x-lockstep-csrf': 'any' })
  expect(status).toBe(204)
  return String(headers['set-cookie']).split(';', 1)[0] ?? ''
}

/** Takes a lease away, and gives the code of the refusal or who it was. */
async function release(site: Bench, headers: Record<string, string>): Promise<string> {
  const { lockstep } = work.open('pg')
  await using lease = await lockstep.leases.acquire(key`Instance:1`)
  const wish = { key: lease.key, reason: 'it hangs', terminate: false }
  const done = await site.post('/api/leases/release', wish, headers)
  if (done.status !== 200) return done.problem().code
  const { text } = await site.ask('/api/audit?key=Instance:1', { headers })
  return (JSON.parse(text) as AuditList).entries[0]?.by ?? ''
}

test('gives each person the role of their token, and writes their name into the audit', async () => {
  const site = await bench(work.open('pg').lockstep, { people: PEOPLE })
  expect((await site.ask('/api/session')).status).toBe(401)
  const ada = { cookie: await login(site, TOKENS.ada, 'somebody else') }
  const bob = { cookie: await login(site, TOKENS.bob) }
  expect(await site.session(ada)).toMatchObject({ name: 'Ada', operator: true, token: true })
  expect(await site.session(bob)).toMatchObject({ name: 'Bob', operator: false })
  expect(await release(site, ada)).toBe('console (Ada@127.0.0.1)')
  expect(await release(site, bob)).toBe('operators-only')
  for (const path of ['events/payload?topic=t&key=k&seq=1', 'outbox/payload?dispatcher=d&topic=t&key=k']) {
    expect((await site.ask(`/api/${path}`, { headers: bob })).problem().code).toBe('operators-only')
  }
  const bearer = { authorization: `Bearer ${encodeURIComponent('x')}` }
  expect((await site.ask('/api/session', { headers: bearer })).status).toBe(401)
  // No user can act with the CSRF token of another user's session.
  const { csrf } = await site.session(bob)
  const wish = { key: 'Instance:1', reason: 'it hangs', terminate: false }
  const stolen = await site.post('/api/leases/release', wish, { ...ada, 'x-lockstep-csrf': csrf })
  expect(stolen.problem().code).toBe('csrf-wrong')
})

test('leaves it to the service who sends a request', async () => {
  const known: Record<string, KnownPerson> = {
    ada: { name: 'Ada', role: 'operator', address: '10.0.0.7' },
    bob: { name: 'Bob', role: 'viewer' },
  }
  const site = await bench(work.open('pg').lockstep, {
    authenticate: async ({ headers }) => {
      if (headers.get('x-user') === 'broken') throw new Error('the directory is away')
      return known[headers.get('x-user') ?? '']
    },
  })
  // Also under another name than a loopback one: the service says who may look.
  const stranger = await site.ask('/api/session', { headers: { host: 'shop.example' } })
  expect([stranger.status, stranger.problem().code]).toEqual([401, 'not-authenticated'])
  expect((await site.ask('/api/session', { headers: { 'x-user': 'broken' } })).status).toBe(503)
  expect(await site.session({ 'x-user': 'bob' })).toMatchObject({ name: 'Bob', operator: false, token: false })
  expect(await release(site, { 'x-user': 'bob' })).toBe('operators-only')
  expect(await release(site, { 'x-user': 'ada' })).toBe('console (Ada@10.0.0.7)')
  // The secret of one person is not that of another.
  const { csrf } = await site.session({ 'x-user': 'bob' })
  const wish = { key: 'Instance:1', reason: 'it hangs', terminate: false }
  const crossed = await site.post('/api/leases/release', wish, { 'x-user': 'ada', 'x-lockstep-csrf': csrf })
  expect(crossed.problem().code).toBe('csrf-wrong')
  expect((await site.post('/api/login', { token: TOKENS.ada }, { 'x-lockstep-csrf': 'any' })).status).toBe(409)
})

test.each<[string, ConsoleOptions]>([
  ['people and a token', { people: PEOPLE, token: TOKENS.ada }],
  ['people and operator', { people: PEOPLE, operator: true }],
  ['authenticate and a token', { authenticate: () => undefined, token: TOKENS.ada }],
  ['no person', { people: [] }],
  ['one name twice', { people: [PEOPLE[0], { ...PEOPLE[1], name: 'Ada' }] }],
  ['one token twice', { people: [PEOPLE[0], { name: 'Eve', role: 'viewer', token: TOKENS.ada }] }],
  ['a short token', { people: [{ name: 'Ada', role: 'viewer', token: 'short' }] }],
  ['no token', { people: [{ name: 'Ada', role: 'viewer' }] }],
  ['a wrong digest', { people: [{ name: 'Ada', role: 'viewer', sha256: 'abc' }] }],
  ['an unknown role', { people: [{ ...PEOPLE[0], role: 'admin' as 'viewer' }] }],
  ['a line break in a name', { people: [{ ...PEOPLE[0], name: 'Ada\nLovelace' }] }],
])('rejects %s', (_, options) => {
  const { lockstep } = work.open('pg')
  expect(() => createConsole(lockstep, options)).toThrow(InvalidOptionError)
})

test('never repeats a token of a person in an error', () => {
  const { lockstep } = work.open('pg')
  const people = [PEOPLE[0], { name: 'Eve', role: 'viewer', token: TOKENS.ada }] as const
  expect(() => createConsole(lockstep, { people })).toThrow(
    expect.objectContaining({ message: expect.not.stringContaining(TOKENS.ada) }),
  )
})
