import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { expect, test } from 'vitest'
import { root } from '../tools/check/repository.ts'
import { testDatabase } from '../tools/server/testDatabase.ts'

const database = await testDatabase()

test('the example of the README runs as printed, with DATABASE_URL alone', async () => {
  const readme = await readFile(join(root, 'README.md'), 'utf8')
  const program = /```ts\n([^]*?)```/.exec(readme)?.[1] ?? ''
  await mkdir(join(root, '.lockstep'), { recursive: true })
  const folder = await mkdtemp(join(root, '.lockstep', 'readme-'))
  try {
    await writeFile(join(folder, 'transfer.ts'), program)
    const { stdout } = await promisify(execFile)(process.execPath, ['--import', 'tsx', join(folder, 'transfer.ts')], {
      cwd: root,
      // No PGHOST or PGUSER that happens to be set here.
      env: {
        PATH: process.env['PATH'],
        DATABASE_URL: database.url,
        TSX_TSCONFIG_PATH: join(root, 'tsconfig.json'),
      },
    })
    expect(stdout).toContain(`{ id: 'alice', balance: 60 }`)
    expect(stdout).toContain(`{ id: 'bob', balance: 90 }`)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  const { rows } = await client.query('SELECT sum(balance)::int AS total FROM accounts')
  await client.end()
  expect(rows).toEqual([{ total: 150 }])
})
