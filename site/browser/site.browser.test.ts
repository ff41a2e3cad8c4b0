import type { Browser, Page } from 'playwright-core'
import { posix } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { findChromium, launch } from '../../console/browser/chromium.ts'
import { accessibility, openPage } from '../../console/browser/watchedPage.ts'
import { builtBytes, builtFiles, builtPages, readBuilt, serveBuilt } from './builtSite.ts'

/** The built site, as a reader meets it. */

const chromium = findChromium()
const pages = await builtPages()
/** Pages that were written by hand. axe-core looks at all of them, and at a few of those that are generated. */
const written = pages.filter((page) => !/^(?:api|source|decisions)\//.test(page) || page.endsWith('/index.html'))

/** What readers search for, and the page that must be on the first screen. */
const QUESTIONS: readonly (readonly [string, string])[] = [
  ['prevent double booking', '/guides/cookbook.html#prevent-double-booking'],
  ['ordered outbox', '/reference/outbox.html'],
  ['40001', '/guides/choosing-isolation.html'],
  ['idempotency key', '/reference/http.html'],
  ['lock held by', '/operating/locks.html'],
  ['pgbouncer', '/platforms/pgbouncer.html'],
  ['redlock', '/migrating/redlock.html'],
  ['leader election', '/reference/leases.html#leader'],
  ['LOCKSTEP_LOCK_TIMEOUT', '/reference/errors.html#lockstep_lock_timeout'],
  ['gap-free invoice numbers', '/guides/cookbook.html#gap-free-invoice-numbers'],
  ['exactly-once webhook', '/guides/cookbook.html#exactly-once-webhook-receiver'],
  ['connection lost during commit', '/operating/failures.html'],
]

test('has no dead link', async () => {
  const files = new Set(await builtFiles())
  const texts = new Map(await Promise.all(pages.map(async (page) => [page, await readBuilt(page)] as const)))
  const ids = new Map([...texts].map(([page, text]) => [page, new Set(matches(text, /\sid="([^"]+)"/g))]))
  const dead = [...texts].flatMap(([page, text]) =>
    matches(text, /\s(?:href|src)="([^"]+)"/g).flatMap((href) => {
      if (/^(?:[a-z][a-z0-9+.-]*:|\/\/)/i.test(href)) return []
      const [path = '', anchor] = decodeURIComponent(href.replaceAll('&amp;', '&')).split('#', 2)
      const target = fileOf(path === '' ? page : posix.join('/', posix.dirname(page), path).slice(1), path)
      const found = path.startsWith('/') ? fileOf(path.slice(1), path) : target
      if (!files.has(found)) return [`${page}: ${href}`]
      return anchor === undefined || anchor === '' || ids.get(found)?.has(anchor) !== false ? [] : [`${page}: ${href}`]
    }),
  )
  expect(dead).toEqual([])
})

test('is small enough to host anywhere', async () => {
  const bytes = await builtBytes()
  console.log(`${pages.length} pages, ${(bytes / 1_000_000).toFixed(1)} MB`)
  expect(bytes).toBeLessThan(60_000_000)
})

describe.skipIf(chromium === undefined)('in a browser', () => {
  let browser: Browser
  let site: Awaited<ReturnType<typeof serveBuilt>>

  beforeAll(async () => {
    browser = await launch(chromium as string)
    site = await serveBuilt()
  })
  afterAll(async () => {
    await browser.close()
    await site.close()
  })

  test('opens every page without an error, and without scrolling sideways on a phone', async () => {
    const faults: string[] = []
    const { page, complaints, close } = await openPage(browser, `${site.url}/index.html`)
    for (const path of pages.filter((each) => each !== '404.html')) {
      await page.setViewportSize({ width: 1280, height: 860 })
      await page.goto(`${site.url}/${path}`, { waitUntil: 'load' })
      await page.locator('#app h1').first().waitFor()
      faults.push(...complaints.splice(0).map((complaint) => `${path}: ${complaint}`))
      await page.setViewportSize({ width: 390, height: 844 })
      const width = await page.evaluate('document.documentElement.scrollWidth')
      if (Number(width) > 390) faults.push(`${path}: ${String(width)} pixels wide on a phone`)
    }
    await close()
    expect(faults).toEqual([])
  })

  test.each(['light', 'dark'] as const)('is accessible in %s mode', async (colorScheme) => {
    const faults: string[] = []
    const { page, close } = await openPage(browser, `${site.url}/index.html`, { colorScheme, reducedMotion: 'reduce' })
    for (const path of written) {
      await page.goto(`${site.url}/${path}`, { waitUntil: 'load' })
      expect(await page.evaluate(`document.documentElement.classList.contains('dark')`)).toBe(colorScheme === 'dark')
      faults.push(...(await accessibility(page)).map((violation) => `${path}: ${violation}`))
    }
    await close()
    expect(faults).toEqual([])
  })

  test.each(QUESTIONS)('finds "%s" on the first screen', async (question, expected) => {
    const { page, close } = await openPage(browser, `${site.url}/index.html`)
    await search(page, question)
    await expect.poll(() => onFirstScreen(page), { message: question }).toContainEqual(expect.stringContaining(expected))
    await close()
  })

  test('shows the version, and switches to dark mode', async () => {
    const { page, close } = await openPage(browser, `${site.url}/index.html`)
    expect(await page.getByRole('link', { name: /^v\d+\.\d+\.\d+/ }).count()).toBeGreaterThan(0)
    await page.getByRole('switch').first().click()
    await expect.poll(() => page.evaluate(`document.documentElement.classList.contains('dark')`)).toBe(true)
    await close()
  })
})

function matches(text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].map((match) => match[1] ?? '')
}

/** The file that a static host answers with. */
function fileOf(path: string, href: string): string {
  return path === '' || href.endsWith('/') ? `${path.replace(/\/?$/, path === '' ? '' : '/')}index.html` : path
}

async function search(page: Page, question: string): Promise<void> {
  await page.locator('#local-search button').first().click()
  await page.locator('.VPLocalSearchBox input').fill(question)
}

/** The addresses of the results that are visible without scrolling. */
function onFirstScreen(page: Page): Promise<string[]> {
  return page.evaluate(`
    [...document.querySelectorAll('.VPLocalSearchBox a.result')]
      .filter((link) => link.getBoundingClientRect().top < window.innerHeight)
      .map((link) => link.getAttribute('href'))`)
}
