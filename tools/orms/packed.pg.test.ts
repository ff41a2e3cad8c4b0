import { cp, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import pg from 'pg'
import { Lockstep } from 'pg-lockstep'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { command } from '../check/command.ts'
import { installConsumer, linkOurs } from '../check/consumer.ts'
import { manifest, pack, tarball } from '../check/tarball.ts'
import { testDatabase } from '../server/testDatabase.ts'
import { COUNTER, CREATE_ORM_TABLES, START_COUNTER } from './underTest/tables.sql.ts'

const { exports } = await manifest()
const entries = Object.entries(exports).flatMap(([name, target]) =>
  target.startsWith('./dist/orms/') ? [basename(name)] : [],
)

/** What each entry needs beside the package: what its users install. */
const NEEDED: Readonly<Record<string, readonly string[]>> = {
  drizzle: ['drizzle-orm', 'pg'],
  'drizzle-postgres-js': ['drizzle-orm', 'postgres'],
  knex: ['knex', 'pg'],
  kysely: ['kysely', 'pg'],
}

const database = await testDatabase({ leakGuard: false })
const admin = new pg.Pool({ connectionString: database.url, max: 1 })
let packed = ''
beforeAll(async () => {
  // `npm test` has built it.
  packed = (await (process.env['LOCKSTEP_BUILT'] === '1' ? pack() : tarball())).path
  await new Lockstep(admin).migrate()
  await admin.query(CREATE_ORM_TABLES)
}, 240_000)
beforeEach(() => admin.query(START_COUNTER, ['c']))
afterAll(() => admin.end())

test.each(entries)('the packed package works with %s in an empty project', async (entry) => {
  const directory = await mkdtemp(join(tmpdir(), 'lockstep-orm-'))
  try {
    expect((await installConsumer(directory, packed)).faults).toEqual([])
    await linkOurs(directory, NEEDED[entry] ?? [])
    await cp(join(import.meta.dirname, 'packed', `${entry}.js`), join(directory, 'program.js'))
    const { hostname, port, username, password, pathname } = new URL(database.url)
    const env = {
      PGHOST: hostname,
      PGPORT: port,
      PGUSER: username,
      PGPASSWORD: password,
      PGDATABASE: pathname.slice(1),
    }
    const ran = await command(process.execPath, ['program.js'], { cwd: directory, env: { ...process.env, ...env } })
    expect(ran.output).toBe('')
    expect(ran.code).toBe(0)
    const { rows } = await admin.query<{ value: number }>(COUNTER, ['c'])
    expect(rows[0]?.value).toBe(10)
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
})
