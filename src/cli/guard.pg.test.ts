import { beforeAll, describe, expect, test } from 'vitest'
import pg from 'pg'
import { type Ran, runCommand } from '../../tools/server/testing/commandLine.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { Lockstep } from '../index.ts'

const database = await testDatabase()

const guard = (...args: string[]): Promise<Ran> => runCommand(['guard', ...args], { url: database.url })

beforeAll(async () => {
  const pool = new pg.Pool({ connectionString: database.url })
  await new Lockstep(pool).migrate()
  await pool.query('CREATE TABLE accounts (id integer, balance integer)')
  await pool.end()
})

describe('lockstep guard', () => {
  test('adds, lists, sets, samples and removes guards, as text and as JSON', async () => {
    expect(await guard()).toMatchObject({ code: 0, stdout: 'No table has a guard.\n' })
    const added = await guard('add', 'accounts', '--key', 'Account:{id}')
    expect(added).toMatchObject({ code: 0, stderr: '' })
    expect(added.stdout).toContain('public.accounts is guarded by Account:{id}: observe.')
    const pool = new pg.Pool({ connectionString: database.url, application_name: 'legacy' })
    await pool.query('INSERT INTO accounts VALUES (7, 0)')
    await pool.end()
    const samples = await guard('samples', 'accounts')
    expect(samples.stdout).toMatch(/legacy +postgres +INSERT +Account:7/)
    const set = await guard('set', 'accounts', '10%', '--reason', 'first tenth', '--json')
    expect(JSON.parse(set.stdout)).toMatchObject({
      ok: true,
      guards: [
        { table: 'public.accounts', key: 'Account:{id}', mode: { percent: 10 }, reason: 'first tenth', unlocked: 1 },
      ],
    })
    expect((await guard('remove', 'accounts')).stdout).toContain('No table has a guard.')
    expect(await guard('remove', 'accounts')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('There is no guard'),
    })
  })

  test.each([
    [['add'], 'No table was named.'],
    [['add', 'accounts'], '--key is missing.'],
    [['add', 'accounts', 'maybe', '--key', 'A:{id}'], 'Unknown mode'],
    [['set', 'accounts'], 'No mode was named.'],
    [['set', 'accounts', '101%'], 'Unknown mode'],
    [['set', 'accounts', 'observe', '--lease'], '--lease is not for this'],
    [['remove', 'accounts', 'observe'], 'takes a table and nothing else'],
    [['--key', 'A:{id}'], '--key is for one guard'],
    [['list'], 'does not know'],
  ])('rejects %j before anything is sent', async (args, complaint) => {
    const { code, stderr } = await guard(...args)
    expect(code).toBe(2)
    expect(stderr).toContain(complaint)
  })
})
