import { key, Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { findChromium } from './chromium.ts'
import { browserToolsFor } from './browserTools.ts'

/** What an operator sees while a server is restarted, and that the page need not be reloaded. */

const chromium = findChromium()
const UNREACHABLE = /ERR_(CONNECTION|INCOMPLETE|EMPTY|NETWORK|HTTP)|status of (401|503)/
const TOKEN = 'a token that nobody guesses'

describe.skipIf(chromium === undefined)('the console through restarts', { timeout: 120_000 }, () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres()
    const pool = new pg.Pool({ connectionString: server.url(), max: 1 })
    await new Lockstep(pool).migrate()
    await pool.end()
  }, 60_000)
  afterAll(() => server.stop('immediate'))
  const stage = browserToolsFor(() => server.url(), chromium as string)

  test('shows a banner while its server is down, reconnects, and shows new data', async () => {
    const { scene } = stage
    const first = await stage.start({ operator: true })
    const { page, open, row } = await stage.look(first.url, { expected: UNREACHABLE })
    await open('leases')
    await page.getByText('No lease is held.').waitFor()
    await first.close()
    await page.getByRole('alert').getByText('The console’s server does not answer.').waitFor()
    await page.locator('.pill').getByText('Reconnecting').waitFor()
    // What was there stays to be read.
    expect(await page.getByText('No lease is held.').count()).toBe(1)
    const engine = scene.service('engine')
    await scene.lease(engine, '3', 'engine-1')
    await stage.start({ operator: true }, first.port)
    await page.locator('.pill').getByText('Live').waitFor()
    expect(await page.getByRole('alert').count()).toBe(0)
    // The new process has another secret: the page has asked for it.
    await row('Leases', 'Instance:3').getByRole('button', { name: 'Release Instance:3' }).click()
    await page.getByLabel('Reason').fill('after the restart')
    await page.getByRole('dialog').getByRole('button', { name: 'Release Instance:3' }).click()
    await page.getByRole('dialog', { name: 'History of Instance:3' }).getByText('“after the restart”').waitFor()
  })

  test('asks for the token again after its server restarted', async () => {
    const first = await stage.start({ token: TOKEN })
    const { page } = await stage.look(first.url, { expected: UNREACHABLE })
    const logIn = async (): Promise<void> => {
      await page.getByLabel('Token').fill(TOKEN)
      await page.keyboard.press('Enter')
      await page.locator('.pill').getByText('Live').waitFor()
    }
    await logIn()
    await first.close()
    await page.locator('.pill').getByText('Reconnecting').waitFor()
    await stage.start({ token: TOKEN }, first.port)
    await logIn()
  })

  test('reports a database that is down, and continues when it is back', async () => {
    const { scene } = stage
    const { url } = await stage.start({ operator: true })
    const { page, open, row } = await stage.look(url)
    await open('leases')
    await page.getByText('No lease is held.').waitFor()
    await server.crash()
    await page.locator('.pill').getByText('Database down').waitFor()
    await page.getByRole('alert').getByText('The database does not answer.').waitFor()
    await server.start()
    await page.locator('.pill').getByText('Live').waitFor()
    expect(await page.getByRole('alert').count()).toBe(0)
    const lease = await scene.service('engine').leases.acquire(key`Instance:${4}`, { holder: 'engine-2' })
    await row('Leases', 'Instance:4').waitFor()
    await lease.release()
    await page.getByText('No lease is held.').waitFor()
  })
})
