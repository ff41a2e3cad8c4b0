import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import type { Browser, BrowserContextOptions, Locator, Page } from 'playwright-core'

/** A page that is watched: what it complains about is a finding. */
export interface WatchedPage {
  readonly page: Page
  /** Errors that the page wrote or threw, and what its policy forbade. */
  readonly complaints: string[]
  /** Opens a tab, and comes back when it shows something. */
  readonly open: (tab: 'overview' | 'locks' | 'leases' | 'outbox' | 'events' | 'records') => Promise<void>
  /** The row of a table. */
  readonly row: (table: string, text: string) => Locator
  readonly close: () => Promise<void>
}

/** Long, for busy machines: what is waited for comes within a second or two. */
const PATIENCE_MS = 40_000

export async function openPage(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
): Promise<WatchedPage> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, colorScheme: 'light', ...options })
  context.setDefaultTimeout(PATIENCE_MS)
  const page = await context.newPage()
  const complaints: string[] = []
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') complaints.push(message.text())
  })
  page.on('pageerror', (error) => complaints.push(error.stack ?? error.message))
  await page.goto(url)
  return {
    page,
    complaints,
    async open(tab) {
      await page
        .getByRole('navigation')
        .getByRole('link', { name: new RegExp(`^${tab}`, 'i') })
        .click()
      // The first one is gone when there is none: a tab can have several.
      await page.locator('main .skeleton').first().waitFor({ state: 'detached' })
    },
    row: (table, text) => page.getByRole('table', { name: table }).getByRole('row').filter({ hasText: text }),
    close: () => context.close(),
  }
}

interface Violation {
  readonly id: string
  readonly impact: string | null
  readonly nodes: readonly { readonly target: readonly string[]; readonly failureSummary?: string }[]
}

let axe: string | undefined

/** What axe-core finds, however small. */
export async function accessibility(page: Page): Promise<string[]> {
  axe ??= await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
  await page.evaluate(axe)
  const violations = await page.evaluate(async () => {
    const { axe: checker } = globalThis as unknown as { axe: { run(): Promise<{ violations: Violation[] }> } }
    return (await checker.run()).violations
  })
  return violations.map(
    ({ id, impact, nodes }) => `${impact} ${id}: ${nodes.map(({ target }) => target.join(' ')).join(', ')}`,
  )
}
