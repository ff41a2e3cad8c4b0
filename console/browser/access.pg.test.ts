import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { once } from 'node:events'
import { describe, expect, onTestFinished, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { findChromium } from './chromium.ts'
import { browserToolsFor } from './browserTools.ts'

/** Who may look, who may act, and what other pages in the same browser cannot do. */

const database = await testDatabase()
const chromium = findChromium()
const TOKEN = 'a token that nobody guesses'
/** Browsers write refusals to their console, however well they are expected. */
const REFUSED = /status of 40[13]/

describe.skipIf(chromium === undefined)('access to the console in a browser', { timeout: 120_000 }, () => {
  const stage = browserToolsFor(() => database.url, chromium as string)

  test('explains disabled buttons without the operator flag, and the server rejects the calls as well', async () => {
    const { scene } = stage
    const lease = await scene.lease(scene.service('engine'), '1', 'engine-1')
    const { url } = await stage.start({})
    const { page, open, row } = await stage.look(url, { expected: REFUSED })
    await page.locator('.pill').getByText('Read-only').waitFor()
    await open('leases')
    const button = row('Leases', 'Instance:1').getByRole('button', { name: 'Release Instance:1' })
    expect(await button.getAttribute('aria-disabled')).toBe('true')
    const reason = await button.evaluate((element) => {
      const id = element.getAttribute('aria-describedby') ?? ''
      return document.getElementById(id)?.textContent
    })
    expect(reason).toContain('read-only')
    await button.focus()
    await page.keyboard.press('Enter')
    await page.getByRole('status').getByText('This console is read-only.').waitFor()
    expect(await page.getByRole('dialog').count()).toBe(0)
    const refusal = await page.evaluate(async () => {
      const { csrf } = (await (await fetch('api/session')).json()) as { csrf: string }
      const answer = await fetch('api/leases/release', {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-lockstep-csrf': csrf },
        body: JSON.stringify({ key: 'Instance:1', reason: 'no', terminate: false }),
      })
      return { status: answer.status, code: ((await answer.json()) as { code: string }).code }
    })
    expect(refusal).toEqual({ status: 403, code: 'operators-only' })
    expect(lease.signal.aborted).toBe(false)
    expect(await page.evaluate(async () => (await fetch('api/outbox/payload?dispatcher=d&topic=t&key=k')).status)).toBe(
      403,
    )
  })

  test('asks for the token, rejects a wrong one, keeps the right one, and forgets it on logout', async () => {
    const { url } = await stage.start({ token: TOKEN })
    const { page, complaints } = await stage.look(url, { expected: REFUSED })
    const field = page.getByLabel('Token')
    await field.fill('some other token, quite long')
    await page.keyboard.press('Enter')
    await page.getByRole('alert').getByText('Wrong token. This is not the token of this console.').waitFor()
    expect(await page.locator('.where').count()).toBe(0)
    await field.fill(TOKEN)
    await page.keyboard.press('Enter')
    await page.locator('.pill').getByText('Live').waitFor()
    expect(complaints.length).toBeGreaterThan(0)
    expect(await page.evaluate(() => document.cookie)).toBe('')
    await page.reload()
    await page.locator('.pill').getByText('Live').waitFor()
    await page.getByRole('button', { name: 'Log out' }).click()
    await field.waitFor()
    await page.reload()
    await field.waitFor()
  })

  test('shows the server’s message to one viewer too many, and connects it when another leaves', async () => {
    const { url } = await stage.start({})
    const leaving = new AbortController()
    const others = await Promise.all(
      Array.from({ length: 50 }, () => fetch(`${url}api/stream?show=overview`, { signal: leaving.signal })),
    )
    expect(others.map(({ status }) => status)).toEqual(Array.from({ length: 50 }, () => 200))
    const { page } = await stage.look(url, { expected: /status of 503/ })
    await page.getByRole('alert').getByText('Too many viewers.').waitFor()
    leaving.abort()
    await page.locator('.pill').getByText('Live').waitFor()
  })

  test('rejects changes by a request without the secret and by another site', async () => {
    const { scene } = stage
    const engine = scene.service('engine')
    const lease = await scene.lease(engine, '2', 'engine-1')
    const { url } = await stage.start({ operator: true })
    const { page } = await stage.look(url, { expected: REFUSED })
    await page.locator('.pill').getByText('Live').waitFor()
    const body = JSON.stringify({ key: 'Instance:2', reason: 'mischief', terminate: false })
    const post = ({ address, body: text, type }: { address: string; body: string; type: string }): Promise<unknown> =>
      fetch(address, { method: 'POST', headers: { 'content-type': type }, body: text, credentials: 'include' }).then(
        (answer) => answer.status,
        () => 'not sent',
      )
    const address = `${url}api/leases/release`
    expect(await page.evaluate(post, { address, body, type: 'application/json' })).toBe(403)
    const other = await anotherSite()
    const expected = /CORS|Failed to load|status of 40[13]|frame-ancestors/
    const stranger = await stage.look(other, { expected, extraHTTPHeaders: {} })
    expect(await stranger.page.evaluate(post, { address, body, type: 'application/json' })).toBe('not sent')
    // What needs no permission to be sent, as a form does: it arrives, and is refused.
    await stranger.page.evaluate(post, { address, body, type: 'text/plain' })
    const session = (where: string): Promise<unknown> =>
      fetch(where).then(
        (answer) => answer.text(),
        () => 'not read',
      )
    expect(await stranger.page.evaluate(session, `${url}api/session`)).toBe('not read')
    await stranger.page.evaluate((where) => {
      const frame = document.createElement('iframe')
      frame.src = where
      document.body.append(frame)
    }, url)
    await expect.poll(() => stranger.complaints).toContainEqual(expect.stringMatching(/frame-ancestors/))
    expect(await engine.leases.history(lease.key)).toEqual([])
    expect(await engine.leases.inspect(lease.key)).toMatchObject({ held: true })
  })
})

/** A page of another site, in the same browser. */
async function anotherSite(): Promise<string> {
  const server = createServer((_, response) => {
    response
      .setHeader('content-type', 'text/html')
      .end('<!doctype html><link rel="icon" href="data:,"><title>Prizes</title>')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.close()
    server.closeAllConnections()
  })
  return `http://localhost:${(server.address() as AddressInfo).port}/`
}
