import { expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { lockSuite } from './transactions.conformance.ts'

const database = await testDatabase()

lockSuite(database, { driver: 'pg', route: 'direct' })
lockSuite(database, { driver: 'postgres', route: 'direct' })

if (database.pooledUrl === undefined) {
  test.skip('PgBouncer is not installed: the suite was not run behind it', () => expect.fail())
} else {
  lockSuite(database, { driver: 'pg', route: 'behind a busy PgBouncer' })
  lockSuite(database, { driver: 'postgres', route: 'behind a busy PgBouncer' })
}
