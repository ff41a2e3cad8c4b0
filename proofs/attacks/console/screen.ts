import { setTimeout as sleep } from 'node:timers/promises'
import type { Page } from 'playwright-core'
import type { Random } from '../../seed.ts'

/** What a tab did to the browser while it was looked at. */
export interface Seen {
  /** Rows that the table says it has, and those on the page. */
  readonly rows: number
  readonly drawn: number
  readonly longestTaskMs: number
  readonly tasksOver50ms: number
  /** What the page's main thread took of the processor, whatever else ran. */
  readonly processorMs: number
}

// In the browser's own words: this program has no types for them.
export const OBSERVE = `
  window.longTasks = []
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.longTasks.push(entry.duration)
  }).observe({ type: 'longtask', buffered: true })`
const FORGET = 'window.longTasks.length = 0'
export const TAKE = 'window.longTasks.splice(0)'
const BLOCK = 'setTimeout(() => { const until = performance.now() + 200; while (performance.now() < until); })'
const scroll = (table: string, to: number): string => `{
  const box = document.querySelector('.table.${table}').closest('.box')
  box.scrollTop = ${to} * box.scrollHeight
}`

const SCROLL_EVERY_MS = 250

export async function observe(page: Page): Promise<void> {
  await page.addInitScript({ content: OBSERVE })
}

/** A task of 200 ms must be seen: or the others prove nothing. */
export async function longestKnown(page: Page): Promise<number> {
  await page.evaluate(FORGET)
  await page.evaluate(BLOCK)
  for (let looks = 0; looks < 40; looks++) {
    const durations = await page.evaluate<number[]>(TAKE)
    if (durations.length > 0) return Math.max(...durations)
    await sleep(50)
  }
  return 0
}

/** From the click until nothing is loading any more, by the browser's own clock. */
const open = (tab: string): string => `new Promise((resolve) => {
  const from = performance.now()
  document.querySelector('nav a[href="#${tab}"]').click()
  const look = () => {
    const shown = document.querySelector('nav a[aria-current]').getAttribute('href') === '#${tab}'
    if (shown && document.querySelector('main .skeleton') === null) resolve(performance.now() - from)
    else requestAnimationFrame(look)
  }
  requestAnimationFrame(look)
})`

/** How long a tab takes to open, coming from another one. */
export async function openingMs(page: Page, tab: string): Promise<number> {
  await page.evaluate(open(tab === 'locks' ? 'leases' : 'locks'))
  return Math.round(await page.evaluate<number>(open(tab)))
}

/** Opens a tab, and looks at it for a while: scrolling, sorting and filtering as people do. */
export async function lookAt(
  page: Page,
  tab: string,
  table: string | undefined,
  seconds: number,
  random: Random,
): Promise<Seen> {
  await page.evaluate(FORGET)
  const clock = await processorClock(page)
  await page
    .getByRole('navigation')
    .getByRole('link', { name: new RegExp(`^${tab}`, 'i') })
    .click()
  await page.locator('main .skeleton').first().waitFor({ state: 'detached' })
  const until = performance.now() + seconds * 1000
  let [rows, drawn] = [0, 0]
  if (table !== undefined) {
    const shown = page.locator(`.table.${table}`)
    await shown.waitFor()
    // The look before may have ended in the middle of a word.
    await page.getByRole('searchbox').fill('')
    for (let round = 0; performance.now() < until; round++) {
      await page.evaluate(scroll(table, random.next()))
      // While locks change hands, those of one session are not there.
      rows = Math.max(rows, Number(await shown.getAttribute('aria-rowcount')) - 1)
      if (round % 20 === 10)
        await shown
          .getByRole('columnheader')
          .nth(round % 3)
          .getByRole('button')
          .click()
      if (round % 30 === 15) await page.getByRole('searchbox').fill('1')
      if (round % 30 === 20) await page.getByRole('searchbox').fill('')
      drawn = Math.max(drawn, await shown.locator('.rows > [role=row]').count())
      await sleep(SCROLL_EVERY_MS)
    }
  } else {
    while (performance.now() < until) await sleep(SCROLL_EVERY_MS)
  }
  const durations = await page.evaluate<number[]>(TAKE)
  return {
    rows,
    drawn,
    longestTaskMs: Math.round(Math.max(0, ...durations)),
    tasksOver50ms: durations.length,
    processorMs: Math.round(await clock()),
  }
}

/** Counts from now on, until it is read. */
async function processorClock(page: Page): Promise<() => Promise<number>> {
  const session = await page.context().newCDPSession(page)
  await session.send('Performance.enable', { timeDomain: 'threadTicks' })
  const read = async (): Promise<number> => {
    const { metrics } = await session.send('Performance.getMetrics')
    return 1000 * (metrics.find(({ name }) => name === 'TaskDuration')?.value ?? 0)
  }
  const before = await read()
  return async () => {
    const after = await read()
    await session.detach()
    return after - before
  }
}
