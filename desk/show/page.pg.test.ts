import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { findChromium, launch } from '../../console/browser/chromium.ts'
import { accessibility, openPage } from '../../console/browser/watchedPage.ts'
import type { CardState, Frame, SideState } from '../../proofs/show/state.ts'
import { type RaceSite, startRaceSite } from '../testing/raceSite.ts'

const chromium = findChromium()

/** In the browser's own words. */
const SHIFT = `new Promise((resolve) => {
  let sum = 0
  new PerformanceObserver((list) => { for (const entry of list.getEntries()) sum += entry.value }).observe({ type: 'layout-shift', buffered: true })
  requestAnimationFrame(() => setTimeout(() => resolve(sum)))
})`

const SIDE: SideState = {
  done: 12,
  notDone: 0,
  violations: 0,
  perSecond: 3,
  p99Ms: 40,
  broken: [],
  picture: { kind: 'wallets', wallets: [{ name: 'Anna', balance: 100, lowest: -5 }] },
}
const RUN: CardState = {
  card: 'wallets',
  phase: 'idle',
  callers: 100,
  elapsedMs: 8000,
  ofMs: 8000,
  judged: true,
  striking: [],
  naive: { ...SIDE, violations: 7 },
  lockstep: SIDE,
  timeline: [],
}

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

  test.each([
    ['no-preference', '100 callers · 8 s · checked'],
    ['reduce', 'Not run yet'],
  ] as const)('draws what arrives within a second at once, or with less motion together: %s', async (motion, says) => {
    const { page, close } = await openPage(browser, 'about:blank', { reducedMotion: motion })
    await page.clock.install()
    const body = `data: ${JSON.stringify({ cards: [RUN] } satisfies Frame)}\n\n`
    await page.route('**/show/stream', (route) => route.fulfill({ contentType: 'text/event-stream', body }))
    await page.goto(site.origin)
    // The stream has ended, so all of it has arrived.
    await page.locator('.pill').getByText('Disconnected').waitFor()
    const status = page.locator('#wallets .status')
    expect(await status.textContent()).toBe(says)
    await page.clock.runFor(1000)
    await expect.poll(() => status.textContent()).toBe('100 callers · 8 s · checked')
    expect(await page.locator('#wallets .naive .violations dd').textContent()).toBe('7')
    await close()
  })

  test('runs nothing when no viewer is left', async () => {
    await expect.poll(() => site.show.staged).toBe(false)
  })
})
