import pg from 'pg'
import postgres from 'postgres'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { describeOwnersSetting, type OwnersSetting } from './settings.conformance.ts'

const database = await testDatabase()

const POOL_SIZE = 6

function withPostgresJs(name: string, shows: unknown, options: postgres.Options<{}> = {}): OwnersSetting {
  return {
    name: `postgres.js, ${name}`,
    shows,
    open() {
      const sql = postgres(database.url, { max: POOL_SIZE, onnotice() {}, ...options })
      return {
        pool: sql as never,
        begin: (work) => sql.begin(work as never) as never,
        end: () => sql.end({ timeout: 1 }),
      }
    },
  }
}

function withPg(name: string, shows: unknown, options: pg.PoolConfig = {}): OwnersSetting {
  return {
    name: `pg, ${name}`,
    shows,
    open() {
      const pool = new pg.Pool({ connectionString: database.url, max: POOL_SIZE, ...options })
      return {
        pool,
        async begin(work) {
          const client = await pool.connect()
          try {
            await client.query('BEGIN')
            const value = await work(client)
            await client.query('COMMIT')
            return value
          } finally {
            client.release()
          }
        },
        end: () => pool.end(),
      }
    },
  }
}

/** A type of postgres.js. */
function type(from: number[], parse: (text: string) => unknown, serialize: (value: unknown) => string): object {
  return { to: from[0], from, parse, serialize }
}

const hostile = (text: unknown): unknown => ({ hostile: text })
const upper = (name: string): string => name.toUpperCase()

const settings = [
  withPostgresJs('plain', { big_number: '12', some_text: 'ü' }),
  withPostgresJs('camel', { bigNumber: '12', someText: 'ü' }, { transform: postgres.camel }),
  withPostgresJs(
    'columns renamed there and back',
    { x_BIG_NUMBER: '12', x_SOME_TEXT: 'ü' },
    { transform: { column: { from: (name) => `x_${upper(name)}`, to: (name) => name.slice(2).toLowerCase() } } },
  ),
  withPostgresJs('all columns of one name', { same: 'ü' }, { transform: { column: () => 'same' } }),
  withPostgresJs(
    'values changed',
    { big_number: hostile('12'), some_text: hostile('ü') },
    { transform: { value: { from: hostile } } },
  ),
  withPostgresJs(
    'null as undefined',
    { big_number: '12', some_text: 'ü' },
    { transform: { value: (value: unknown) => value ?? undefined, undefined: null } },
  ),
  withPostgresJs('rows as lists', ['12', 'ü'], { transform: { row: (row: object) => Object.values(row) as unknown } }),
  withPostgresJs('rows without content', 'row', { transform: { row: { from: () => 'row' } } }),
  withPostgresJs(
    'types of its own',
    { big_number: 12n, some_text: 'ü' },
    {
      types: {
        bigint: postgres.BigInt,
        json: type([114, 3802], hostile, (value) => `"${String(value)}"`),
        date: type([1082, 1114, 1184], hostile, String),
        boolean: type([16], hostile, (value) => (value === 'yes' ? 't' : 'f')),
      },
    },
  ),
  withPostgresJs(
    'types of its own for everything',
    { big_number: hostile('12'), some_text: hostile('ü') },
    {
      types: {
        all: type([25, 20, 21, 23, 16, 17, 26, 114, 3802, 700, 701, 1043, 1184, 2950], hostile, () => 'hostile'),
      },
    },
  ),
  withPostgresJs('without prepared statements', { big_number: '12', some_text: 'ü' }, { prepare: false }),
  withPostgresJs('all at once', ['hostile'], {
    transform: {
      column: upper,
      value: { from: hostile },
      row: { from: () => ['hostile'] },
      undefined: null,
    },
    types: { all: type([25, 20, 23, 16, 114], hostile, () => 'hostile') },
    fetch_types: false,
  }),
  withPg('plain', { big_number: '12', some_text: 'ü' }),
  withPg(
    'type parsers of its own for everything',
    { big_number: hostile('12'), some_text: hostile('ü') },
    { types: { getTypeParser: () => hostile as never } },
  ),
  // pg reads text that comes as binary as bytes.
  withPg('binary', { big_number: '12', some_text: 'ü' }, { binary: true } as pg.PoolConfig),
  withPg(
    'numbers and dates',
    { big_number: 12n, some_text: 'ü' },
    {
      types: {
        getTypeParser: ((oid: number, format: 'text') =>
          oid === 20 ? BigInt : oid === 25 ? String : (pg.types.getTypeParser(oid, format) ?? hostile)) as never,
      },
    },
  ),
]

for (const setting of settings) describeOwnersSetting(setting)
