/**
 * Opens the built documentation site in a real browser and judges it: `npm run docs:check`, after `npm run docs:build`.
 *
 *     npm run docs:check              every page
 *     npm run docs:check -- --small   a page of each section
 *
 * Every page opens without a complaint of the browser, axe-core finds nothing in both themes, no page is wider than a phone, every link inside
 * the site leads to a page and a heading, and the search finds the page for each of the questions on its first screen.
 */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import { parseArgs } from 'node:util'
import type { Browser } from 'playwright-core'
import { preview } from 'vite'
import { findChromium, launch } from '../console/browser/chromium.ts'
import { accessibility, openPage } from '../console/browser/watchedPage.ts'
import { root } from '../tools/check/repository.ts'
import { endProgress, progress } from '../tools/judge/progress.ts'
import { describeMachine, goal, printReport } from '../tools/judge/report.ts'
import { deadLinks } from './deadLinks.ts'

const SITE = join(root, 'site')
const BUILT = join(SITE, 'dist')

/** What readers type, and a page that answers. */
const QUESTIONS: readonly (readonly [question: string, page: RegExp])[] = [
  ['prevent double booking', /guides\/cookbook/],
  ['ordered outbox', /reference\/outbox|migrating|guides\/import/],
  ['40001', /errors|choosing-isolation|transactions|locks/],
  ['idempotency key', /reference\/http/],
  ['lock held by', /operating\/locks|reference\/(locks|cli|console|errors)|operating\/leases/],
  ['deadlock', /reference\/(rows|locks|transactions|errors)|choosing/],
  ['leader election', /reference\/leases|migrating\/shedlock|choosing/],
  ['pgbouncer', /operating\/poolers|platforms\/pgbouncer/],
  ['gap-free invoice numbers', /gap-free-counters|cookbook/],
  ['failover', /operating\/failures/],
]

const PHONE = { width: 375, height: 812 }
const THEMES = ['light', 'dark'] as const

function pagesIn(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true })
    .flatMap((entry) => {
      const path = join(folder, entry.name)
      if (entry.isDirectory()) return pagesIn(path)
      return entry.name.endsWith('.html') && entry.name !== '404.html'
        ? [relative(BUILT, path).split(sep).join('/')]
        : []
    })
    .toSorted()
}

/** A page of each section, for a look that is quick. */
function oneOfEach(pages: readonly string[]): string[] {
  return [...new Map(pages.map((page) => [page.split('/').slice(0, -1).join('/'), page])).values()]
}

const filesIn = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)).split(sep).join('/'))

const bytesIn = (folder: string): number =>
  filesIn(folder).reduce((sum, file) => sum + statSync(join(folder, file)).size, 0)

interface Faults {
  readonly complaints: string[]
  readonly accessibility: string[]
  readonly wide: string[]
}

async function lookAt(browser: Browser, origin: string, page: string, faults: Faults): Promise<void> {
  const watched = await openPage(browser, `${origin}/${page}`)
  const html = watched.page.locator('html')
  try {
    for (const theme of THEMES) {
      await watched.page.emulateMedia({ colorScheme: theme, reducedMotion: 'reduce' })
      await html.evaluate((element, dark) => element.classList.toggle('dark', dark), theme === 'dark')
      const findings = await accessibility(watched.page)
      faults.accessibility.push(...findings.map((fault) => `${page}, ${theme}: ${fault}`))
    }
    await watched.page.setViewportSize(PHONE)
    const width = await html.evaluate((element) => element.scrollWidth)
    if (width > PHONE.width) faults.wide.push(`${page}: ${width} px`)
    faults.complaints.push(...watched.complaints.map((complaint) => `${page}: ${complaint}`))
  } finally {
    await watched.close()
  }
}

/** The pages that a search shows without scrolling. */
async function pagesFound(browser: Browser, origin: string, question: string): Promise<string[]> {
  const { page, close } = await openPage(browser, `${origin}/`)
  try {
    await page.locator('#local-search button').first().click()
    await page.locator('.VPLocalSearchBox input').fill(question)
    // A new page for each question, so these are its results. Words are marked in titles only, and not every answer has them there.
    const results = page.locator('.VPLocalSearchBox .result')
    await results.first().waitFor()
    const height = page.viewportSize()?.height ?? 0
    const all = await results.evaluateAll((links) =>
      links.map((link) => ({ href: link.getAttribute('href') ?? '', top: link.getBoundingClientRect().top })),
    )
    return all.filter(({ top }) => top < height).map(({ href }) => href)
  } finally {
    await close()
  }
}

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { small: { type: 'boolean' }, json: { type: 'boolean' } } })
  const chromium = findChromium()
  if (chromium === undefined) return 3
  const all = pagesIn(BUILT)
  const pages = values.small === true ? oneOfEach(all) : all
  const server = await preview({
    root: SITE,
    configFile: false,
    logLevel: 'error',
    appType: 'mpa',
    preview: { port: 0, host: '127.0.0.1' },
  })
  const browser = await launch(chromium)
  const faults: Faults = { complaints: [], accessibility: [], wide: [] }
  const missed: string[] = []
  try {
    const origin = (server.resolvedUrls?.local[0] ?? '').replace(/\/$/, '')
    for (const [index, page] of pages.entries()) {
      progress(`site: ${index + 1} of ${pages.length}, ${page}`)
      await lookAt(browser, origin, page, faults)
    }
    for (const [question, page] of QUESTIONS) {
      progress(`site: searching for ${question}`)
      const shown = await pagesFound(browser, origin, question)
      if (!shown.some((href) => page.test(href))) missed.push(`"${question}": ${shown.join(', ') || 'nothing'}`)
    }
  } finally {
    endProgress()
    await browser.close()
    await server.close()
  }
  const dead = deadLinks(
    new Map(all.map((page) => [page, readFileSync(join(BUILT, page), 'utf8')])),
    new Set(filesIn(BUILT)),
  )
  for (const fault of Object.values({ ...faults, missed, dead }).flat()) process.stderr.write(`${fault}\n`)
  const index = readdirSync(join(BUILT, 'assets', 'chunks')).find((name) => name.startsWith('@localSearchIndex'))
  return printReport(
    {
      name: 'documentation site',
      machine: describeMachine(),
      results: [
        {
          pages: all.length,
          'looked at': pages.length,
          'size, MB': Number((bytesIn(BUILT) / 1e6).toFixed(1)),
          'search index, MB':
            index === undefined
              ? 0
              : Number((readFileSync(join(BUILT, 'assets', 'chunks', index)).length / 1e6).toFixed(1)),
        },
      ],
      goals: [
        goal('complaints of the browser', faults.complaints.length, '=', 0),
        goal('findings of axe-core, in both themes', faults.accessibility.length, '=', 0),
        goal('pages that are wider than a phone', faults.wide.length, '=', 0),
        goal('links inside the site that lead nowhere', dead.length, '=', 0),
        goal(`of ${QUESTIONS.length} questions, not answered on the first screen of the search`, missed.length, '=', 0),
      ],
    },
    values.json === true,
  )
}

process.exitCode = await main()
