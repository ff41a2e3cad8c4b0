import { randomUUID } from 'node:crypto'
import pg from 'pg'
import { afterAll, expect, inject, test } from 'vitest'
import { testDatabase } from './testDatabase.ts'

const database = await testDatabase()
const direct = new pg.Pool({ connectionString: database.url })
afterAll(() => direct.end())

test('creates a database per test file', async () => {
  const { rows } = await direct.query<{ name: string }>('select current_database() as name')
  expect(rows).toEqual([{ name: database.name }])
})

test('creates independent databases at the same time', async () => {
  const others = await Promise.all([copyOf(), copyOf(), copyOf()])
  expect(new Set([database.name, ...others]).size).toBe(4)
})

async function copyOf(): Promise<string> {
  const name = `${database.name}_${randomUUID().slice(0, 8)}`
  const admin = new pg.Client(database.adminUrl)
  await admin.connect()
  try {
    await admin.query(`create database ${name} template ${inject('templateDatabase')}`)
    await admin.query(`drop database ${name} with (force)`)
  } finally {
    await admin.end()
  }
  return name
}

test.skipIf(database.pooledUrl === undefined)('connects to it by the pooled URL through PgBouncer', async () => {
  const client = new pg.Client(database.pooledUrl)
  await client.connect()
  try {
    const { rows } = await client.query<{ name: string; pid: number }>(
      'select current_database() as name, pg_backend_pid() as pid',
    )
    expect(rows[0]?.name).toBe(database.name)
    // A pooler invents the process id that it sends to its clients.
    expect(rows[0]?.pid).not.toBe((client as unknown as { processID: number }).processID)
  } finally {
    await client.end()
  }
})
