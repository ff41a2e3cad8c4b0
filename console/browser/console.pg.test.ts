import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { type Lockstep, WriteWithoutLockError } from 'pg-lockstep'
import type { Page } from 'playwright-core'
import { describe, expect, test } from 'vitest'
import { poolOf, testDatabase } from '../../tools/server/testDatabase.ts'
import { builtPage, filesIn } from './builtPage.ts'
import { findChromium } from './chromium.ts'
import { REASON } from './scene.ts'
import { browserToolsFor } from './browserTools.ts'
import { accessibility, type WatchedPage } from './watchedPage.ts'

/** The console as an operator sees it: a real browser, a real server, real locks, leases and streams. */

const database = await testDatabase()
const chromium = findChromium()
const LIMIT_BYTES = 120_000
const HOUR_MS = 3_600_000

describe.skipIf(chromium === undefined)('the console in a browser', { timeout: 120_000 }, () => {
  const stage = browserToolsFor(() => database.url, chromium as string)

  test('keeps the whole page below 120 kB, compressed', async () => {
    const sizes = await Promise.all(
      (await filesIn(await builtPage())).map(async (file) => gzipSync(await readFile(file)).length),
    )
    expect(sizes.length).toBeGreaterThan(3)
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(LIMIT_BYTES)
  })

  test('explains in each empty tab what it would show', async () => {
    const { page, open } = await stage.look((await stage.start()).url)
    await page.locator('.pill').getByText('Live').waitFor()
    await page.getByText('Nothing needs attention.').waitFor()
    await open('locks')
    await page.getByText('No lock is held.').waitFor()
    await open('leases')
    await page.getByText('No lease is held.').waitFor()
    await open('outbox')
    await page.getByText('No dispatcher has run yet.').waitFor()
    await page.getByText('No stream waits.').waitFor()
    const focused = (): Promise<string | undefined> =>
      page.evaluate(() => document.activeElement?.outerHTML.slice(0, 60))
    await page.reload()
    await page.keyboard.press('Tab')
    expect(await focused()).toContain('class="skip"')
    await page.keyboard.press('Enter')
    expect(await focused()).toContain('id="main"')
    await page.getByText('No stream waits.').waitFor()
    expect(await page.title()).toBe('Outbox · Lockstep console')
    expect(page.url()).toContain('#outbox')
  })

  test('shows a contended lock with its row, its details and the tree of waiters', async () => {
    const { scene } = stage
    const [billing, reports] = [scene.service('billing'), scene.service('reports')]
    const letGo = await scene.hold(billing, '7')
    const waiting = scene.ask(reports, '7')
    const { page, open, row } = await stage.look((await stage.start()).url)
    await page.getByRole('link', { name: /1 session waits for a lock/ }).click()
    const tree = page.getByRole('region', { name: 'Who waits for whom' })
    await tree.getByText('1 session waits, because of 1 session at the top.').waitFor()
    const blocker = tree.locator('ul > li').filter({ hasText: 'billing' }).first()
    expect(await blocker.locator('summary').textContent()).toMatch(/^billing \(\d+\) idle in transaction ?blocks 1$/)
    expect(await blocker.locator('li').textContent()).toMatch(
      /^reports \(\d+\) active waits at Wallet:7 for [\d.]+ m?s$/,
    )
    const listed = row('Locks', 'Wallet:7')
    expect(await listed.getByRole('cell').nth(1).textContent()).toMatch(/^billing \(\d+\)$/)
    expect(await listed.getByRole('cell').nth(4).textContent()).toBe('1')
    await listed.getByRole('button', { name: 'Details of Wallet:7' }).click()
    const dialog = page.getByRole('dialog', { name: 'Wallet:7' })
    await dialog.getByText(/reports \(\d+\) · exclusive · active · waits for/).waitFor()
    await page.keyboard.press('Escape')
    await dialog.waitFor({ state: 'detached' })
    await letGo()
    await waiting
    await page.getByText('No lock is held.').waitFor()
    await open('overview')
    await page.getByText('Nothing needs attention.').waitFor()
  })

  test('shows guards with their counts, their state and who wrote without the lock', async () => {
    const [legacy, billing] = [stage.scene.service('legacy'), stage.scene.service('billing')]
    const write = (service: Lockstep, sql: string): Promise<unknown> => service.transaction({}, (tx) => tx.query(sql))
    await write(billing, 'CREATE TABLE accounts (id integer PRIMARY KEY, balance integer)')
    await billing.guards.add('accounts', { key: 'Account:{id}' })
    await write(legacy, 'INSERT INTO accounts VALUES (7, 100)')
    const { page, open } = await stage.look((await stage.start()).url)
    await open('locks')
    const guards = page.getByRole('region', { name: 'Guards' })
    await guards.getByText(/^since .*: 1 rows written without the lock, 0 with .*, 0 statements refused$/).waitFor()
    expect(await guards.locator('li > div').first().textContent()).toBe('public.accounts Account:{id} observe ')
    expect(await guards.locator('li li').allTextContents()).toEqual([
      expect.stringMatching(/legacy as \w+ · INSERT Account:7 · INSERT INTO accounts VALUES/),
    ])
    expect(await accessibility(page)).toEqual([])
    await billing.guards.set('accounts', 'enforce')
    await expect(write(legacy, 'UPDATE accounts SET balance = 0')).rejects.toBeInstanceOf(WriteWithoutLockError)
    await write(billing, 'ALTER TABLE accounts DISABLE TRIGGER ALL')
    await page.reload()
    await guards.getByText('1 statements refused').waitFor()
    expect(await guards.locator('.pill').allTextContents()).toEqual(['enforce', 'disabled'])
    await billing.guards.remove('accounts')
    // The page looks again by itself.
    await guards.waitFor({ state: 'detached' })
    await write(billing, 'DROP TABLE accounts')
  })

  test('shows a promotion on an open page: on which server and timeline, and that new leases wait', async () => {
    const admin = poolOf(database.url)
    const { page, open } = await stage.look((await stage.start()).url)
    await open('overview')
    const epochs = page.getByRole('region', { name: 'Server epochs' })
    const first = await epochs.getByRole('listitem').first().textContent()
    expect(await epochs.getByRole('status').count()).toBe(0)
    // As after a promotion. The page looks again by itself.
    await admin.query('TRUNCATE lockstep.incarnation; UPDATE lockstep.epoch SET timeline = timeline + 1')
    await admin.query('SELECT FROM lockstep.ensure_incarnation()')
    await epochs.getByText(/^New leases are granted in .*: the row of a holder can be missing\.$/).waitFor()
    const entries = await epochs.getByRole('listitem').allTextContents()
    expect(entries[0]).toMatch(/^promoted or restored timeline 1, generation \d+, \S+:\d+since /)
    expect(entries[1]).toBe(first)
    expect(await accessibility(page)).toEqual([])
    await admin.query('UPDATE lockstep.epoch SET grants_from = NULL')
    await epochs.getByRole('status').waitFor({ state: 'detached' })
    await admin.end()
  })

  test('filters and sorts rows, and keeps the focus while they change', async () => {
    const { scene } = stage
    const billing = scene.service('billing', 8)
    const held = await Promise.all(['b', 'a', 'c'].map((name) => scene.hold(billing, name)))
    const { page, open, row } = await stage.look((await stage.start()).url)
    await open('locks')
    const names = (): Promise<string[]> => page.locator('.locks .rows [role=cell].key').allTextContents()
    await expect.poll(names).toHaveLength(3)
    const key = page.getByRole('button', { name: 'Key' })
    await key.click()
    // The names of the keys come a moment after their locks.
    await expect.poll(names).toEqual(['Wallet:a', 'Wallet:b', 'Wallet:c'])
    await key.click()
    await expect.poll(names).toEqual(['Wallet:c', 'Wallet:b', 'Wallet:a'])
    expect(await page.getByRole('columnheader', { name: 'Key' }).getAttribute('aria-sort')).toBe('descending')
    const focused = row('Locks', 'Wallet:b').getByRole('button')
    await focused.focus()
    held.push(await scene.hold(billing, 'd'))
    await held.shift()?.()
    held.unshift(await scene.hold(billing, 'b'))
    await expect.poll(names).toEqual(['Wallet:d', 'Wallet:c', 'Wallet:b', 'Wallet:a'])
    expect(await focused.evaluate((element) => element === document.activeElement)).toBe(true)
    expect(await page.getByRole('table', { name: 'Locks' }).getAttribute('aria-rowcount')).toBe('5')
    await page.getByRole('searchbox').fill('wallet:C billing')
    await expect.poll(names).toEqual(['Wallet:c'])
    await page.getByText('1 of 4').waitFor()
    await page.getByRole('searchbox').fill('nothing like it')
    await page.getByText('No lock matches.').waitFor()
    for (const letGo of held) await letGo()
  })

  test('releases a lease by force with a reason, and shows it in the history', async () => {
    const { scene } = stage
    const engine = scene.service('engine')
    const lease = await scene.lease(engine, '42', 'engine-1')
    const { page, open, row } = await stage.look((await stage.start()).url)
    await open('leases')
    const listed = row('Leases', 'Instance:42')
    expect(await listed.getByRole('cell').nth(1).textContent()).toBe('engine-1')
    expect(await listed.getByRole('cell').nth(2).textContent()).toBe(String(lease.fence))
    expect(await listed.getByRole('cell').nth(4).textContent()).toMatch(/^\d+ s$/)
    const button = listed.getByRole('button', { name: 'Release Instance:42' })
    await button.click()
    const dialog = page.getByRole('dialog', { name: 'Release Instance:42?' })
    await dialog.getByText('Instance:42 is taken away from engine-1').waitFor()
    const confirm = dialog.getByRole('button', { name: 'Release Instance:42' })
    expect(await confirm.isDisabled()).toBe(true)
    await page.keyboard.press('Escape')
    await dialog.waitFor({ state: 'detached' })
    expect(await button.evaluate((element) => element === document.activeElement)).toBe(true)
    await page.keyboard.press('Enter')
    await dialog.getByLabel('Reason').fill('it hangs since noon')
    await confirm.click()
    const history = page.getByRole('dialog', { name: 'History of Instance:42' })
    const entry = history.getByRole('listitem').first()
    await entry.getByText('taken away').waitFor()
    const told = await entry.textContent()
    expect(told).toContain(`engine-1 taken away fence ${lease.fence}`)
    expect(told).toMatch(/by console \(operator@.*\): “it hangs since noon”$/)
    await page.getByText('Instance:42 was taken away from its holder.').waitFor()
    expect(await engine.leases.history(lease.key)).toMatchObject([{ ending: 'forced', reason: 'it hangs since noon' }])
    await history.getByRole('button', { name: 'Close' }).click()
    await page.getByText('No lease is held.').waitFor()
    await page.getByRole('button', { name: 'History of a key …' }).click()
    await page.getByLabel('Key').fill('Instance:42')
    await page.getByRole('button', { name: 'Show' }).click()
    await page.getByRole('dialog', { name: 'History of Instance:42' }).getByText('it hangs since noon').waitFor()
  })

  test('inspects, retries, skips, pauses and resumes parked streams', async () => {
    const { scene } = stage
    const trades = scene.service('trades', 8)
    const run = scene.deliver(trades)
    await scene.enqueue(trades, 'trades', ['p1', 'p1', 'p2', 'p3'], true)
    await scene.enqueue(trades, 'trades', ['p9'], false)
    const { page, open, row } = await stage.look((await stage.start()).url)
    await open('outbox')
    await expect.poll(() => row('Streams that wait', 'blocked').count()).toBe(3)
    expect(await row('Shards', 'default 0').getByRole('cell').nth(1).textContent()).toBe('trades-1')
    await page.getByText(/default: \d+ shards?, all topics/).waitFor()
    const act = async (name: string, reason = 'a test'): Promise<void> => {
      await page.getByRole('button', { name, exact: true }).click()
      const dialog = page.getByRole('dialog')
      await dialog.getByLabel('Reason').fill(reason)
      await dialog.getByRole('button', { name, exact: true }).click()
      await dialog.waitFor({ state: 'detached' })
    }
    const first = row('Streams that wait', 'trades/p1')
    expect(await first.getByRole('cell').nth(8).textContent()).toBe(REASON)
    expect(await page.getByText('NaN').count()).toBe(0)
    await first.getByRole('button', { name: 'Payload trades/p1' }).click()
    await page.getByRole('dialog').getByText('"price": "NaN"').waitFor()
    await page.keyboard.press('Escape')
    await act('Skip trades/p2', 'a test order')
    await expect.poll(() => run.delivered).toContain('trades/p2#1†')
    await act('Pause trades/p3')
    await row('Streams that wait', 'trades/p3').getByText('paused').waitFor()
    run.repair()
    await act('Retry trades/p1')
    await page.getByText('trades/p1 is tried again now.').waitFor()
    await expect.poll(() => run.delivered).toEqual(expect.arrayContaining(['trades/p1#1', 'trades/p1#2']))
    await first.waitFor({ state: 'detached' })
    await act('Resume trades/p3')
    await expect.poll(() => run.delivered).toContain('trades/p3#1')
    await page.getByText('No stream waits.').waitFor()
    await page.getByRole('button', { name: 'Pause a stream' }).click()
    await page.getByLabel('Topic').fill('trades')
    await page.getByLabel('Key').fill('p9')
    await page.getByRole('dialog').getByLabel('Reason').fill('a test')
    await page.getByRole('dialog').getByRole('button', { name: 'Pause', exact: true }).click()
    await row('Streams that wait', 'trades/p9').getByText('paused').waitFor()
    await act('Resume trades/p9')
    await page.getByText('No stream waits.').waitFor()
    await trades.transaction({}, (tx) =>
      tx.enqueue({ topic: 'reminders', key: 'customer-7', payload: {}, notBefore: new Date(Date.now() + 2 * HOUR_MS) }),
    )
    const held = row('Streams that wait', 'reminders/customer-7')
    await held.getByText('held').waitFor()
    expect(await held.getByRole('cell').nth(7).textContent()).toMatch(/^(1 h 59|2 h 0) min$/)
    await expect
      .poll(() => row('Shards', 'default').evaluateAll((rows) => rows.map(({ children }) => children[6]?.textContent)))
      .toContain('1')
    await run.stop()
    await row('Shards', 'default 0').getByText('none').waitFor()
  })

  test('passes the accessibility check on each tab in both themes, also on a phone, and takes the pictures', async () => {
    const { scene } = stage
    const [billing, reports, engine, trades] = ['billing', 'reports', 'engine', 'trades'].map((name) =>
      scene.service(name, 12),
    ) as [Lockstep, Lockstep, Lockstep, Lockstep]
    await scene.remember(billing)
    const held = await Promise.all(['1001', '1002', '1003', '1004'].map((name) => scene.hold(billing, name)))
    const waiting = [scene.ask(reports, '1002'), scene.ask(engine, '1002'), scene.ask(reports, '1004')]
    for (const name of ['7', '8', '9']) await scene.lease(engine, name, `engine-${name}`)
    const run = scene.deliver(trades)
    await scene.enqueue(trades, 'trades', ['portfolio-3', 'portfolio-17', 'portfolio-3'], true)
    const stopping = new AbortController()
    const traffic = (async () => {
      for (let n = 0; !stopping.signal.aborted; n++)
        await scene.enqueue(trades, 'trades', [`portfolio-${n % 99}0`], false)
    })()
    const { url } = await stage.start()
    const wide = await stage.look('about:blank')
    const phone = await stage.look('about:blank', {
      viewport: { width: 360, height: 740 },
      isMobile: true,
      hasTouch: true,
    })
    for (const { page } of [wide, phone]) {
      await nameDatabase(page)
      await page.goto(url)
    }
    const findings: string[] = []
    const check = async ({ page }: WatchedPage, tab: string, name: string): Promise<void> => {
      for (const finding of await accessibility(page)) findings.push(`${tab}, ${name}: ${finding}`)
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
      if (wider > 0) findings.push(`${tab}, ${name}: ${wider} px wider than the screen`)
    }
    // The overview last: then its charts have something to show.
    for (const tab of ['locks', 'leases', 'outbox', 'events', 'records', 'overview'] as const) {
      for (const each of [wide, phone]) await each.open(tab)
      if (tab === 'outbox') await wide.row('Streams that wait', 'trades/portfolio-17').waitFor()
      for (const theme of ['dark', 'light']) {
        await wide.page.getByLabel('Theme').selectOption(theme)
        await check(wide, tab, theme)
        await takePicture(wide, theme === 'light' ? `console-${tab}.png` : `console-${tab}-dark.png`)
      }
      await check(phone, tab, 'phone')
      if (tab === 'leases') await takePicture(phone, 'console-phone.png')
    }
    stopping.abort()
    await traffic
    await wide.open('leases')
    await wide.page.getByRole('button', { name: 'Release Instance:8' }).click()
    await check(wide, 'leases', 'dialog')
    expect(findings).toEqual([])
    await wide.page.reload()
    expect(await wide.page.getByLabel('Theme').inputValue()).toBe('light')
    for (const letGo of held) await letGo()
    await Promise.all(waiting)
    run.repair()
    await run.stop()
  })
})

/** A database of a test has a name that says nothing to readers of the documentation. */
async function nameDatabase(page: Page): Promise<void> {
  await page.route('**/api/session', async (route) => {
    const answer = await route.fetch()
    await route.fulfill({ response: answer, json: { ...((await answer.json()) as object), database: 'shop' } })
  })
}

async function takePicture({ page }: WatchedPage, name: string): Promise<void> {
  const path = fileURLToPath(new URL(`../../docs/pictures/${name}`, import.meta.url))
  const picture = await page.screenshot({
    animations: 'disabled',
    ...(process.env['UPDATE_PICTURES'] === '1' ? { path } : {}),
  })
  expect(picture.length).toBeGreaterThan(5_000)
}
