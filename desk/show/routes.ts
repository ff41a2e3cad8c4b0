import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { Hono } from 'hono'
import { secureHeaders } from 'hono/secure-headers'
import { CARDS, FAULTS, type Frame } from '../../proofs/show/state.ts'
import { ProblemError } from '../http/problem.ts'
import { measuredPage } from './measured.ts'
import type { Show } from './show.ts'

/** The built page, also where the desk's JavaScript runs from `.built`. */
export const PAGE = new URL(
  import.meta.url.endsWith('.js') ? '../../../desk/page/dist/' : '../page/dist/',
  import.meta.url,
)

const MOST_CALLERS = 1000
const MOST_SECONDS = 60
const ALIVE_MS = 15_000
const TYPES: Readonly<Record<string, string>> = { css: 'text/css', js: 'text/javascript' }

const contentSecurityPolicy = {
  defaultSrc: ["'none'"],
  scriptSrc: ["'self'"],
  styleSrc: ["'self'"],
  imgSrc: ["'self'"],
  connectSrc: ["'self'"],
  baseUri: ["'none'"],
  formAction: ["'none'"],
  frameAncestors: ["'none'"],
}
const guarded = secureHeaders({ contentSecurityPolicy, crossOriginResourcePolicy: 'same-origin' })

/** The page itself, which shows no data. Undefined where it is not built: the start page is then the list of requests. */
export async function showPages(show: Show): Promise<Hono | undefined> {
  const html = await readFile(new URL('index.html', PAGE), 'utf8').catch(() => undefined)
  if (html === undefined) return undefined
  // Data in a script element is not run. `<` would end the element.
  const cards = JSON.stringify(show.texts).replaceAll('<', String.raw`\u003c`)
  const page = html.replace(
    /(<script type="application\/json" id="cards">)[^]*?(<\/script>)/,
    (_, open, end) => `${open}${cards}${end}`,
  )
  const app = new Hono()
  for (const path of ['/', '/measured', '/show/assets/*']) app.use(path, guarded)
  app.get('/', (c) => c.html(page, 200, { 'cache-control': 'no-cache' }))
  app.get('/measured', (c) => c.html(measuredPage(show.texts)))
  app.get('/show/assets/:file', async (c, next) => {
    const file = c.req.param('file')
    const type = TYPES[file.split('.').at(-1) ?? '']
    if (type === undefined || !/^[\w.-]+$/.test(file)) return next()
    const body = await readFile(fileURLToPath(new URL(`assets/${file}`, PAGE))).catch(() => undefined)
    if (body === undefined) return next()
    // Their names carry a hash of their contents.
    return c.body(body, 200, {
      'content-type': `${type}; charset=utf-8`,
      'cache-control': 'max-age=31536000, immutable',
    })
  })
  return app
}

/** What the page asks for, and what clients without the page use. */
export function showApi(show: Show): Hono {
  const app = new Hono()
  app.get('/show/cards', (c) => c.json({ texts: show.texts, cards: show.states }))
  app.get('/show/stream', (c) => {
    let leave = (): void => {}
    const encoder = new TextEncoder()
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        const send = (text: string): void => {
          // A viewer that does not keep up misses frames: each one is complete.
          if ((controller.desiredSize ?? 0) > -20) controller.enqueue(encoder.encode(text))
        }
        const stop = show.watch((frame: Frame) => send(`data: ${JSON.stringify(frame)}\n\n`))
        const alive = setInterval(() => send(':\n\n'), ALIVE_MS)
        const closed = show.onClose(() => {
          leave()
          controller.close()
        })
        leave = () => {
          clearInterval(alive)
          stop()
          closed()
        }
      },
      cancel: () => leave(),
    })
    return c.body(body, 200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' })
  })
  app.post('/show/cards/:card/hammer', async (c) => {
    const card = CARDS.find((each) => each === c.req.param('card'))
    if (card === undefined) return notThere(c.req.path).answer(c)
    const { callers, seconds } = (await c.req.json().catch(() => ({}))) as { callers?: unknown; seconds?: unknown }
    if (!isWhole(callers, MOST_CALLERS) || (seconds !== undefined && !isWhole(seconds, MOST_SECONDS))) {
      const detail = `Send {"callers": 1 to ${MOST_CALLERS}}, and "seconds": 1 to ${MOST_SECONDS} if it is to run for another time than 8 s.`
      return new ProblemError('invalid-request', detail).answer(c)
    }
    show.press({ card, hammer: callers, ...(seconds !== undefined && { seconds }) })
    return c.json({ card, callers }, 202)
  })
  app.post('/show/cards/:card/faults/:fault', (c) => {
    const card = CARDS.find((each) => each === c.req.param('card'))
    const fault = FAULTS.find((each) => each === c.req.param('fault'))
    if (card === undefined || fault === undefined) return notThere(c.req.path).answer(c)
    show.press({ card, fault })
    return c.json({ card, fault }, 202)
  })
  return app
}

function isWhole(value: unknown, most: number): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= most
}

function notThere(path: string): ProblemError {
  return new ProblemError(
    'not-found',
    `There is nothing at ${path}. Cards: ${CARDS.join(', ')}. Faults: ${FAULTS.join(', ')}.`,
  )
}
