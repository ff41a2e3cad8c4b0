import { expect, test } from 'vitest'
import { sqlInOwnFiles } from './sqlInOwnFiles.ts'
import { treeOf } from './tree.ts'

function findings(code: string, file = 'src/locks/acquire.ts'): number {
  return sqlInOwnFiles.find(treeOf({ [file]: code })).length
}

test.each([
  `client.query('select 1')`,
  `client.query('SELECT pg_advisory_xact_lock($1)')`,
  'client.query(`\n  select id, body\n  from outbox\n  where shard = $1`)',
  'const text = `select ${columns} from ${table}`',
  `const text = 'select now()'`,
  `const text = 'insert into leases (name) values ($1)'`,
  'const text = `update ${table} set a = 1`',
  `const text = 'update lockstep.leases as l set a = 1'`,
  `const text = 'delete from leases where name = $1'`,
  `const text = 'with moved as (delete from a returning *) select 1'`,
  `const text = 'create table if not exists a (b int)'`,
  `const text = 'CREATE UNIQUE INDEX CONCURRENTLY a ON b (c)'`,
  `const text = 'alter table a add column b int'`,
  `const text = 'drop schema lockstep cascade'`,
  `const text = "set local lock_timeout = '1s'"`,
  `const text = 'SET TRANSACTION ISOLATION LEVEL SERIALIZABLE'`,
  `const text = 'begin isolation level serializable'`,
  `const text = 'BEGIN'`,
  `await client.query('commit')`,
  `await client.query<Row>('rollback')`,
  `const text = 'savepoint a'`,
  'const text = `rollback to savepoint ${name}`',
  `const text = 'release savepoint a'`,
  `const text = 'lock table a in share mode'`,
  `const text = 'listen wake'`,
  `const text = 'show server_version_num'`,
  `const text = 'truncate a restart identity'`,
])('reports %s', (code) => {
  expect(findings(code)).toBe(1)
})

test.each([
  `throw new Error('BEGIN was refused: the server is a standby')`,
  `throw new Error('COMMIT gave no answer; the outcome is unknown')`,
  `throw new Error('rollback to a state that never was')`,
  `const help = 'Select a key from the list'`,
  `const help = 'select the keys to release'`,
  `const help = 'update the schema to the newest version'`,
  `const help = 'delete parked messages'`,
  `const help = 'create the tables that Lockstep needs'`,
  `const help = 'drop messages that were delivered long ago'`,
  `const help = 'set the lease to expire after so many milliseconds'`,
  `const help = 'lock the rows in one order'`,
  `const help = 'with care'`,
  `type Phase = 'begin' | 'commit' | 'rollback'`,
  `emit('commit')`,
  `if (result.command === 'ROLLBACK') throw new RolledBack()`,
  `// client.query('select 1')`,
  `/** \`select 1\` and 'delete from a' */`,
])('accepts %s', (code) => {
  expect(findings(code)).toBe(0)
})

test('accepts SQL in *.sql.ts, in tests and outside of src', () => {
  const code = `export const text = 'select 1'`
  expect(findings(code, 'src/locks/locks.sql.ts')).toBe(0)
  expect(findings(code, 'src/locks/locks.pg.test.ts')).toBe(0)
  expect(findings(code, 'tools/server/postgres.ts')).toBe(0)
  expect(findings(code, 'src/lockstep.ts')).toBe(1)
})
