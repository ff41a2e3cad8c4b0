import pg from 'pg'
import { afterAll, expect, test } from 'vitest'
import { startPostgres } from '../../tools/server/postgres.ts'
import { Lockstep } from '../index.ts'
import { bench } from './consoleBench.conformance.ts'

const server = await startPostgres()
afterAll(() => server.stop('immediate'))

const pool = new pg.Pool({ connectionString: server.url(), max: 4 })
pool.on('error', () => undefined)
afterAll(() => pool.end())

test('reports a missing schema, and continues when it is there', async () => {
  const lockstep = new Lockstep(pool)
  const site = await bench(lockstep, { everyMs: 100 })
  const stream = await site.stream('overview')
  expect((await stream.trouble()).message).toContain('schema')
  await lockstep.migrate()
  await stream.next('overview')
})

test('reports a crash of the server to every viewer, and continues by itself', async () => {
  const site = await bench(new Lockstep(pool), { everyMs: 100 })
  const [overview, leases] = [await site.stream('overview,locks'), await site.stream('leases')]
  const before = await leases.next('leases')
  await overview.next('overview')
  await server.crash()
  const told = await Promise.all([overview.trouble(), leases.trouble()])
  for (const { message } of told) expect(message).not.toBe('')
  const late = await site.stream('locks')
  await late.trouble()
  // It has no name as long as the database has not answered; the page is there all the same.
  const other = await bench(new Lockstep(pool))
  expect(await other.session()).toMatchObject({ database: '', server: '', schema: 'lockstep' })
  await server.start()
  // The same as before, and sent once more: that is how a viewer hears that it is over.
  expect({ ...(await leases.next('leases')), at: '' }).toEqual({ ...before, at: '' })
  await Promise.all([overview.next('overview'), late.next('locks')])
  expect(await other.session()).toMatchObject({ database: 'postgres', server: expect.stringMatching(/^PostgreSQL \d/) })
})

test('reports a database that does not answer, and closes without it', async () => {
  const lockstep = new Lockstep(pool)
  const site = await bench(lockstep, { everyMs: 100 })
  const stream = await site.stream('leases')
  await stream.next('leases')
  const blocker = await pool.connect()
  try {
    await blocker.query('BEGIN; LOCK TABLE lockstep.leases IN ACCESS EXCLUSIVE MODE')
    expect((await stream.trouble()).message).toBe('The database has not answered for 5 s.')
    await site.close()
  } finally {
    await blocker.query('ROLLBACK')
    blocker.release()
  }
})
