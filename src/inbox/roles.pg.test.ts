import { randomUUID } from 'node:crypto'
import pg from 'pg'
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { Lockstep } from '../lockstep.ts'

const database = await testDatabase()
const owner = new pg.Pool({ connectionString: database.url, max: 2 })
afterAll(() => owner.end())

// Roles belong to the server, not to the database: a name of this file's own.
const role = `consumer_${database.name}`
const url = new URL(database.url)
url.username = role
let app: pg.Pool

beforeEach(async () => {
  await owner.query(`CREATE ROLE ${role} LOGIN NOSUPERUSER`)
  await new Lockstep(owner).grant({ to: role, as: 'application' })
  app = new pg.Pool({ connectionString: url.href, max: 3 })
})
afterEach(async () => {
  await app.end()
  await owner.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`)
})

const event = { topic: 'trades', key: 'a', seq: 1, id: randomUUID() }

test('lets a role with the grants of a consumer do everything', async () => {
  await new Lockstep(owner).grant({ to: role, as: 'consumer' })
  const lockstep = new Lockstep(app)
  const inbox = lockstep.inbox.consumer('portfolios')
  expect(await inbox.handle(event, {}, async () => undefined)).toBe('first')
  expect(await inbox.position(event)).toEqual({ seq: 1, id: event.id })
  expect(await lockstep.transaction({}, (tx) => inbox.acceptMany(tx, [event]))).toEqual(['duplicate'])
  expect(await lockstep.transaction({}, (tx) => inbox.startAt(tx, event, 5, { force: true }))).toBe(true)
})

test('rejects a role without them', async () => {
  const lockstep = new Lockstep(app)
  const inbox = lockstep.inbox.consumer('portfolios')
  const refused = { code: '42501' }
  await expect(inbox.handle(event, {}, async () => undefined)).rejects.toMatchObject(refused)
  await expect(lockstep.transaction({}, (tx) => inbox.acceptMany(tx, [event]))).rejects.toMatchObject(refused)
  await expect(inbox.position(event)).rejects.toMatchObject(refused)
  await expect(lockstep.inbox.positions({ consumer: 'portfolios' })).rejects.toMatchObject(refused)
  await expect(lockstep.inbox.consumers()).rejects.toMatchObject(refused)
  const start = lockstep.transaction({}, (tx) => inbox.startAt(tx, event, 5, { force: true }))
  await expect(start).rejects.toMatchObject(refused)
})
