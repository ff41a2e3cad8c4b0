import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { findChromium, launch } from '../../console/browser/chromium.ts'
import { accessibility, openPage } from '../../console/browser/watchedPage.ts'
import { type RaceSite, startRaceSite } from '../testing/raceSite.ts'

const chromium = findChromium()

/** In the browser's own words. */
const SHIFT = `new Promise((resolve) => {
  let sum = 0
  new PerformanceObserver((list) => { for (const entry of list.getEntries()) sum += entry.value }).observe({ type: 'layout-shift', buffered: true })
  requestAnimationFrame(() => setTimeout(() => resolve(sum)))
})`

async function width(page: Page): Promise<number> {
  return page.evaluate<number>('document.documentElement.scrollWidth')
}

describe.skipIf(chromium === undefined)('the start page in a browser', () => {
  let browser: Browser
  let site: RaceSite

  beforeAll(async () => {
    browser = await launch(chromium ?? '')
    site = await startRaceSite({ emptyMs: 10 })
  })
  afterAll(async () => {
    await browser?.close()
    await site?.close()
  })

  test.each(['light', 'dark'] as const)('is accessible and does not shift, %s', async (colorScheme) => {
    const { page, complaints, close } = await openPage(browser, site.origin, { colorScheme, reducedMotion: 'reduce' })
    await page.locator('.pill').getByText('Live').waitFor()
    expect(await page.evaluate<number>(SHIFT)).toBeLessThan(0.01)
    for (const button of await page.locator('.code-button').all()) await button.click()
    expect(await page.locator('pre code').count()).toBe(10)
    expect(await accessibility(page)).toEqual([])
    await page.goto(`${site.origin}/measured`)
    expect(await accessibility(page)).toEqual([])
    expect(complaints).toEqual([])
    await close()
  })

  test('fits a phone, and is operated with the keyboard', async () => {
    const viewport = { width: 360, height: 740 }
    const { page, complaints, close } = await openPage(browser, site.origin, { viewport })
    await page.locator('.pill').getByText('Live').waitFor()
    const code = page.locator('#wallets').getByRole('button', { name: 'Show me the code' })
    await code.focus()
    await page.keyboard.press('Enter')
    await page.locator('#wallets').getByText('proofs/scenarios/bids.ts').first().waitFor()
    expect(await width(page)).toBeLessThanOrEqual(viewport.width)
    expect(complaints).toEqual([])
    await close()
  })

  test('runs nothing when no viewer is left', async () => {
    await expect.poll(() => site.show.staged).toBe(false)
  })
})
