import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Locator } from 'playwright-core'
import { describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { findChromium } from './chromium.ts'
import { browserToolsFor } from './browserTools.ts'
import { REASON } from './scene.ts'

/** What operators look for and do with many things at once, in a real browser. */

const database = await testDatabase()
const chromium = findChromium()
const ADA = 'the token of Ada, quite long'
const BOB = 'the token of Bob, quite long'

describe.skipIf(chromium === undefined)('operators in a browser', { timeout: 120_000 }, () => {
  const stage = browserToolsFor(() => database.url, chromium as string)

  test('searches events, shows a payload, follows a stream, and keeps the search in the address', async () => {
    const { scene } = stage
    const trades = scene.service('trades')
    await scene.enqueue(trades, 'orders', ['o1', 'o1', 'o2'], false)
    const { url } = await stage.start()
    const { page, open, row } = await stage.look(url)
    await page.locator('.pill').getByText('Live').waitFor()
    await open('events')
    const form = page.getByRole('form', { name: 'Search: Events' })
    await form.getByLabel('Topic').fill('nothing')
    await form.getByRole('button', { name: 'Search' }).click()
    await page.getByText('No retained event fits.').waitFor()
    await form.getByLabel('Topic').fill('orders')
    await page.keyboard.press('Enter')
    await row('Events', 'orders/o2 #1').waitFor()
    expect(await page.getByRole('table', { name: 'Events' }).getAttribute('aria-rowcount')).toBe('4')
    await page.getByRole('button', { name: 'Payload of orders/o2 #1' }).click()
    await page.getByRole('dialog').getByText('"price": 12.5').waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'Stream of orders/o1 #2' }).click()
    await row('Events', 'orders/o2 #1').waitFor({ state: 'detached' })
    await expect.poll(() => page.url()).toContain('#events?events.topic=orders&events.key=o1')
    await page.getByRole('columnheader', { name: 'Event' }).getByRole('button').click()
    await expect.poll(() => page.url()).toContain('events.sort=key')
    // A link to it shows the same.
    const other = await stage.look(page.url())
    await other.row('Events', 'orders/o1 #2').waitFor()
    expect(await other.page.getByRole('form', { name: 'Search: Events' }).getByLabel('Key').inputValue()).toBe('o1')
    expect(await other.page.getByRole('columnheader', { name: 'Event' }).getAttribute('aria-sort')).toBe('ascending')
    const download = page.waitForEvent('download')
    await page.getByRole('button', { name: 'Export Events as CSV' }).click()
    const text = await readFile(await (await download).path(), 'utf8')
    expect(text.split('\r\n').slice(0, 2)).toEqual([
      '"Event","Position","Enqueued","Size","Id"',
      expect.stringMatching(/^"orders\/o1 #1","\d+","\d{4}-/),
    ])
    await open('locks')
    await open('events')
    expect(await form.getByLabel('Key').inputValue()).toBe('o1')
  })

  test('retries and skips many streams, redrives dead letters after a preview, and shows it all in the audit', async () => {
    const { scene } = stage
    const trades = scene.service('trades', 8)
    const run = scene.deliver(trades)
    await scene.remember(trades)
    await scene.enqueue(trades, 'trades', ['m1', 'm2', 'm3'], true)
    const { page, open, row } = await stage.look((await stage.start()).url)
    await page.getByRole('link', { name: /3 streams are parked/ }).click()
    await expect.poll(() => row('Streams that wait', 'blocked').count()).toBe(3)
    expect(page.url()).toContain('#outbox?parked.sort=-since')
    const many = async (fill: Record<string, string>): Promise<void> => {
      for (const [label, text] of Object.entries(fill)) await page.getByRole('dialog').getByLabel(label).fill(text)
      await page.getByRole('button', { name: 'Preview' }).click()
    }
    await page.getByRole('button', { name: 'Retry or skip many' }).click()
    await many({ 'Part of the reason': 'nothing like it' })
    await page.getByRole('dialog').getByText('Nothing fits.').waitFor()
    await many({ 'Part of the reason': REASON.slice(0, 9), Key: 'm1', Topic: 'trades' })
    await page.getByText('1 stream that waits of the dispatcher default').waitFor()
    await page.getByLabel('What to do').selectOption('skip-many')
    const skip = page.getByRole('button', { name: 'Skip 1' })
    expect(await skip.isDisabled()).toBe(true)
    await page.getByRole('dialog').getByLabel('Reason').fill('a wrong price')
    await skip.click()
    await page.getByText('1 of 1 given up.').waitFor()
    await expect.poll(() => run.delivered).toContain('trades/m1#1†')
    run.repair()
    await page.getByRole('button', { name: 'Retry or skip many' }).click()
    await many({ Topic: 'trades' })
    const retry = page.getByRole('button', { name: 'Retry 2' })
    // Before the preview, the label is that of a filter.
    await retry.waitFor()
    await page.getByRole('dialog').getByLabel('Reason').fill('repaired')
    await retry.click()
    await expect.poll(() => run.delivered).toEqual(expect.arrayContaining(['trades/m2#1', 'trades/m3#1']))
    await page.getByText('No stream waits.').waitFor()
    await open('events')
    await row('Dead letters', 'mails/customer-2 #1').waitFor()
    await page.getByRole('button', { name: 'Redrive dead letters' }).click()
    await many({ Topic: 'mails' })
    await page.getByText('3 dead letters of the dispatcher default').waitFor()
    await page.getByRole('dialog').getByLabel('Reason').fill('the mail server is back')
    await page.getByRole('button', { name: 'Redrive 3' }).click()
    await page.getByText('3 of 3 enqueued again.').waitFor()
    // The searches of the page are asked again.
    await row('Dead letters', 'mails/customer-2 #1').waitFor({ state: 'detached' })
    await row('Events', 'mails/customer-2 #1').waitFor()
    await run.stop()
    await open('outbox')
    await page.getByRole('button', { name: 'Remove the dispatcher default' }).click()
    await page.getByRole('dialog').getByLabel('Reason').fill('no longer used')
    await page.getByRole('button', { name: 'Remove default' }).click()
    await page.getByText('No dispatcher has run yet.').waitFor()
    await open('records')
    for (const text of ['a wrong price', 'repaired', 'the mail server is back', 'no longer used']) {
      await row('Audit', text).first().getByText('console (operator@127.0.0.1)').waitFor()
    }
    await row('Inbox positions', 'billing').first().waitFor()
    await row('Consumers', 'reports').getByText('from a broker').waitFor()
    await page.getByRole('button', { name: 'Positions of reports' }).click()
    await row('Inbox positions', 'billing').first().waitFor({ state: 'detached' })
    await row('Inbox positions', 'reports').first().waitFor()
    await row('Idempotency records', 'order-2').getByText('201').waitFor()
    await row('Rollout rules', 'Import:').getByText('observe').waitFor()
  })

  test('replays a part of a stream to a sink of the service, after a preview', async () => {
    const { scene } = stage
    const sent: string[] = []
    await scene.enqueue(scene.service('trades'), 'replays', ['r1', 'r1', 'r1'], false)
    const { url } = await stage.start({
      operator: true,
      replayTo: { archive: (events) => events.map(({ key, seq }) => (sent.push(`${key}#${seq}`), 'sent')) },
    })
    const { page, open, row } = await stage.look(`${url}#events?events.topic=replays`)
    await row('Events', 'replays/r1 #2').getByRole('button', { name: 'Replay from replays/r1 #2' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Up to number').fill('3')
    await dialog.getByRole('button', { name: 'Preview' }).click()
    await dialog.getByText('2 events, from #2 to #3.').waitFor()
    expect(await dialog.getByRole('combobox').inputValue()).toBe('archive')
    expect(sent).toEqual([])
    const confirm = dialog.getByRole('button', { name: 'Replay', exact: true })
    expect(await confirm.isDisabled()).toBe(true)
    await dialog.getByLabel('Reason').fill('the archive lost them')
    await confirm.click()
    await page.getByText('2 events of replays/r1 were sent to archive.').waitFor()
    expect(sent).toEqual(['r1#2', 'r1#3'])
    await open('records')
    await row('Audit', 'the archive lost them').getByText('replay').first().waitFor()
  })

  test('draws what Prometheus knows of the last hour, and says when it does not answer', async () => {
    const server = createServer((request, response) => {
      const query = new URL(request.url ?? '', 'http://prometheus').searchParams
      const isLag = query.get('query')?.includes('lag_events') === true
      const values = [[Number(query.get('end')) - 1800, '4321']]
      const body = { status: 'success', data: { result: isLag ? [{ metric: {}, values }] : [] } }
      response.end(JSON.stringify(body))
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const { url } = await stage.start({ prometheus: { url: `http://127.0.0.1:${port}` } })
    const { page } = await stage.look(url)
    await page.getByRole('img', { name: /^Delivery over the last hour\. events to deliver: .* and 4,321;/ }).waitFor()
    expect(await page.getByText('The charts show what this console has seen itself.').count()).toBe(0)
    server.close()
    server.closeAllConnections()
    const other = await stage.start({ prometheus: { url: `http://127.0.0.1:${port}` } })
    const { page: later } = await stage.look(other.url)
    await later.getByText('Prometheus does not answer.').waitFor()
  })

  test('folds away what Lockstep holds for itself', async () => {
    const { scene } = stage
    const trades = scene.service('trades', 8)
    const run = scene.deliver(trades)
    await scene.lease(scene.service('engine'), '7', 'engine-1')
    const { page, open, row } = await stage.look((await stage.start()).url)
    await open('leases')
    await row('Leases', 'Instance:7').waitFor()
    const box = page.getByLabel(/Show what Lockstep holds for itself/)
    await box.waitFor()
    expect(await row('Leases', 'Outbox:').count()).toBe(0)
    await box.check()
    await row('Leases', 'Outbox:default:shard:0').waitFor()
    await expect.poll(() => page.url()).toContain('own=shown')
    await run.stop()
  })

  test('gives each person the role of their token', async () => {
    const { scene } = stage
    await scene.lease(scene.service('engine'), '9', 'engine-1')
    const people = [
      { name: 'Ada', role: 'operator', token: ADA },
      { name: 'Bob', role: 'viewer', token: BOB },
    ] as const
    const { url } = await stage.start({ people })
    const { page, open } = await stage.look(url, { expected: /status of 401/ })
    const logIn = async (token: string, says: string): Promise<void> => {
      await page.getByLabel('Token').fill(token)
      await page.keyboard.press('Enter')
      await page.locator('.pill').getByText(says).waitFor()
      await open('leases')
    }
    await logIn(BOB, 'Bob: Read-only')
    const button = page.getByRole('button', { name: 'Release Instance:9' })
    expect(await button.getAttribute('aria-disabled')).toBe('true')
    await page.getByRole('button', { name: 'Log out' }).click()
    await logIn(ADA, 'Ada: Operator')
    await button.click()
    await page.getByRole('dialog').getByLabel('Reason').fill('it hangs')
    await page.getByRole('dialog').getByRole('button', { name: 'Release Instance:9' }).click()
    await page.getByText('by console (Ada@127.0.0.1): “it hangs”').waitFor()
  })

  test('lists who consumes, what is left and what waits, and leads to the streams and positions of a consumer', async () => {
    const { scene } = stage
    const trades = scene.service('trades', 8)
    const run = scene.deliver(trades)
    await scene.enqueue(trades, 'trades', ['c1'], true)
    const invoices = trades.consumer('invoices', { topics: ['bills', 'refunds.*'], shards: 1 }, async () => undefined)
    const running = invoices.run()
    await scene.enqueue(trades, 'bills', ['i1', 'i2', 'i2'], false)
    const accepted = async (consumer: string): Promise<number> =>
      (await trades.inbox.positions({ consumer })).positions.length
    await expect.poll(() => accepted('invoices')).toBe(2)
    const id = randomUUID()
    await trades.inbox.consumer('exports').handle({ topic: 'far', key: 'e1', seq: 1, id }, {}, async () => undefined)
    await invoices.stop()
    await running
    await scene.enqueue(trades, 'bills', ['i3', 'i4', 'i5'], false)
    const blocked = async (): Promise<string[]> =>
      (await trades.outbox.parked()).flatMap(({ state, key }) => (state === 'blocked' ? [key] : []))
    await expect.poll(blocked).toContain('c1')
    // With those of other tests.
    const count = String((await blocked()).length)
    const { page, open, row } = await stage.look((await stage.start()).url)
    await open('records')
    const cells = async (name: string): Promise<string[]> => {
      await row('Consumers', name).waitFor()
      return row('Consumers', name).getByRole('cell').allTextContents()
    }
    // Name, topics, to deliver, behind, waiting streams, shards without an owner, positions.
    expect(await cells('exports')).toEqual(['exports', 'from a broker', '', '', '0', '0', '1', 'Positions'])
    expect(await cells('invoices')).toEqual([
      'invoices',
      'bills, refunds.*',
      '3',
      expect.stringMatching(/ (ms|s|min)/),
      '0',
      '1',
      '2',
      'Positions',
    ])
    const [, topics, , , waiting, orphans] = await cells('default')
    expect([topics, waiting, orphans]).toEqual(['all', count, '0'])
    await page.getByRole('button', { name: 'Positions of invoices' }).click()
    await row('Inbox positions', 'exports').waitFor({ state: 'detached' })
    await row('Inbox positions', 'bills/i2').getByText('#2').waitFor()
    expect(await row('Inbox positions', 'invoices').count()).toBe(2)
    await row('Consumers', 'default').getByRole('link', { name: count, exact: true }).click()
    await row('Streams that wait', 'trades/c1').getByText('blocked').waitFor()
    expect(page.url()).toContain('#outbox?q=default')
    await run.stop()
  })

  test('leads from each attention item to its row, which comes first', async () => {
    const { scene } = stage
    const trades = scene.service('trades', 8)
    const run = scene.deliver(trades)
    await scene.enqueue(trades, 'trades', ['first', 'second'], true)
    // By its name it would be the last.
    const zebra = trades.outbox.dispatcher({ name: 'zebra', shards: 1, sink: (events) => events.map(() => 'sent') })
    await scene.enqueue(trades, 'trades', ['any'], false)
    await zebra.drain()
    const [, letGo] = [await scene.hold(trades, 'alone'), await scene.hold(trades, 'wanted')]
    const asking = scene.ask(scene.service('reports'), 'wanted')
    const { page, open } = await stage.look((await stage.start()).url)
    const first = (table: string): Locator => page.getByRole('table', { name: table }).getByRole('row').nth(1)

    await open('outbox')
    const byName = page.getByRole('table', { name: 'Shards' }).getByRole('columnheader', { name: 'Shard', exact: true })
    await byName.getByRole('button').click()
    await first('Shards').getByText('default 0').waitFor()
    await open('overview')
    await page.getByRole('link', { name: /shards? ha(s|ve) no owner/ }).click()
    await first('Shards').getByText('none', { exact: true }).waitFor()
    const shards = await page.getByRole('table', { name: 'Shards' }).getByRole('row').allTextContents()
    const places = (name: RegExp): number[] => shards.flatMap((text, place) => (name.test(text) ? [place] : []))
    expect(Math.max(...places(/none/))).toBeLessThan(Math.min(...places(/default/)))
    expect(places(/zebra 0none/)).toHaveLength(1)
    expect(page.url()).toContain('#outbox?shards.sort=owner')

    await open('overview')
    await page.getByRole('link', { name: /1 session waits for a lock/ }).click()
    await first('Locks').getByText('Wallet:wanted').waitFor()
    expect(page.url()).toContain('#locks?locks.sort=-wait')

    await open('overview')
    await page.getByRole('link', { name: /streams are parked/ }).click()
    await first('Streams that wait').getByText('blocked').waitFor()
    expect(page.url()).toContain('#outbox?parked.sort=-since')
    await letGo()
    await asking
    await run.stop()
  })
})
