import pg from 'pg'
import { createTemplate } from 'pg-lockstep/testing'
import { createTables } from '../orders.ts'

export default async function setup(): Promise<() => Promise<void>> {
  const template = await createTemplate({
    pool: (url) => new pg.Pool({ connectionString: url }),
    prepare: createTables,
  })
  // Started for the tests, if there was none.
  Object.assign(process.env, { TEST_DATABASE_URL: template.url, TEST_TEMPLATE: template.name })
  return () => template.drop()
}
