import type { ConsoleOptions } from 'pg-lockstep/console'
import type { Browser, BrowserContextOptions } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest'
import { builtPage } from './builtPage.ts'
import { launch } from './chromium.ts'
import { openScene, type Scene } from './scene.ts'
import { serve, type Serving } from './serve.ts'
import { openPage, type WatchedPage } from './watchedPage.ts'

/** What the tests in a browser have at hand. Each has a scene of its own; the browser is the file's. */
export interface BrowserTools {
  readonly scene: Scene
  /** A console on the scene's database; closed after the test. */
  start(options?: ConsoleOptions, port?: number): Promise<Serving>
  /** A page, in a context of its own. What it complains about fails the test, unless the pattern expects it. */
  look(url: string, options?: BrowserContextOptions & { readonly expected?: RegExp }): Promise<WatchedPage>
}

/** Where operators need one and the test names none: its pages send it with every request, and no login is needed. */
const TOKEN = 'the-token-of-the-stage'

/** Looks come faster than an operator needs them. */
const EVERY_MS = 250

export function browserToolsFor(url: () => string, chromium: string): BrowserTools {
  let browser: Browser | undefined
  let scene: Scene | undefined
  const serving = new Set<Serving>()
  const visits = new Map<WatchedPage, RegExp | undefined>()
  let sendsToken = false

  beforeAll(async () => {
    await builtPage()
    browser = await launch(chromium)
  }, 60_000)
  afterAll(() => browser?.close())
  beforeEach(() => {
    scene = openScene(url())
  })
  afterEach(async () => {
    const complaints = [...visits].flatMap(([{ complaints: all }, expected]) =>
      all.filter((complaint) => expected === undefined || !expected.test(complaint)),
    )
    for (const [each] of visits) await each.close()
    visits.clear()
    for (const each of serving) await each.close()
    serving.clear()
    await scene?.end()
    expect(complaints).toEqual([])
  })

  return {
    get scene() {
      return scene as Scene
    },
    async start(options = { operator: true }, port) {
      const token = options.token ?? (options.operator === true ? TOKEN : undefined)
      sendsToken = token === TOKEN
      const lockstep = (scene as Scene).service('console')
      const started = await serve(
        lockstep,
        // On a busy machine everything takes long; a test is not to wait for that.
        { everyMs: EVERY_MS, share: 1, ...options, ...(token !== undefined && { token }) },
        port,
      )
      serving.add(started)
      return { ...started, close: () => (serving.delete(started), started.close()) }
    },
    async look(address, { expected, ...options } = {}) {
      const extraHTTPHeaders = sendsToken ? { authorization: `Bearer ${TOKEN}` } : {}
      const made = await openPage(browser as Browser, address, { extraHTTPHeaders, ...options })
      visits.set(made, expected)
      return made
    },
  }
}
