import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { findChromium, launch } from '../../console/browser/chromium.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { Desks } from '../testing/desks.ts'
import { transfers } from '../transfers/index.ts'

const chromium = findChromium()

describe.skipIf(chromium === undefined)('the desk in a browser', async () => {
  const database = await testDatabase()
  const desks = await Desks.start(database, [transfers], {}, 1)
  let browser: Browser

  beforeAll(async () => {
    browser = await launch(chromium ?? '')
  })
  afterAll(() => browser?.close())

  test('sends a request from the page of the API without a policy violation', async () => {
    const page = await browser.newPage()
    const complaints: string[] = []
    page.on('console', (message) => {
      if (message.type() === 'error') complaints.push(message.text())
    })
    page.on('pageerror', (error) => complaints.push(error.message))
    await page.goto(`${desks.origin()}/`)
    await page.getByRole('link', { name: 'Try the API' }).click()
    const operation = page.locator('#operations-transfers-post_accounts')
    await operation.getByRole('button').first().click()
    await operation.getByRole('button', { name: 'Try it out' }).click()
    await operation.locator('textarea').fill('{"id": "browser", "openingBalance": 77}')
    await operation.getByRole('button', { name: 'Execute' }).click()
    await operation.locator('.live-responses-table .response-col_status').filter({ hasText: '201' }).waitFor()
    expect(await desks.get('/accounts/browser')).toMatchObject({ body: { balance: 77 } })
    expect(complaints).toEqual([])
    await page.close()
  })
})
