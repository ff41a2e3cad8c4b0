import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { Hono } from 'hono'
import { secureHeaders } from 'hono/secure-headers'
import { curls } from '../curls.ts'
import { FAVICON, page, PAGE_CSS, text } from './page.ts'

const swagger = dirname(createRequire(import.meta.url).resolve('swagger-ui-dist/package.json'))

/** What of Swagger UI is served, and as what. */
const SWAGGER_FILES: Readonly<Record<string, string>> = {
  'swagger-ui.css': 'text/css',
  'swagger-ui-bundle.js': 'text/javascript',
}

const DOCS_JS = `window.onload = () => {
  SwaggerUIBundle({ url: '/openapi.json', dom_id: '#api', deepLinking: true, validatorUrl: null })
}
`

/** Nothing from elsewhere, nothing inline; Swagger UI sets styles by script and has pictures as data. */
const contentSecurityPolicy = {
  defaultSrc: ["'none'"],
  scriptSrc: ["'self'"],
  styleSrc: ["'self'"],
  imgSrc: ["'self'", 'data:'],
  connectSrc: ["'self'"],
  baseUri: ["'none'"],
  formAction: ["'none'"],
  frameAncestors: ["'none'"],
}

/** The page of requests, the page to try them, and what they are made of. */
export function pages(): Hono {
  const app = new Hono()
  const guarded = secureHeaders({ contentSecurityPolicy, crossOriginResourcePolicy: 'same-origin' })
  for (const path of ['/', '/requests', '/docs', '/docs/*', '/page.css', '/favicon.svg', '/favicon.ico'])
    app.use(path, guarded)

  // Where the page of the race is not served.
  app.get('/', (c) => c.redirect('/requests'))
  app.get('/requests', (c) => c.html(requestsPage(new URL(c.req.url).origin)))
  app.get('/page.css', (c) => c.body(PAGE_CSS, 200, { 'content-type': 'text/css' }))
  app.get('/favicon.svg', (c) => c.body(FAVICON, 200, { 'content-type': 'image/svg+xml' }))
  app.get('/favicon.ico', (c) => c.redirect('/favicon.svg', 301))
  app.get('/docs', (c) => c.html(DOCS_PAGE))
  app.get('/docs/start.js', (c) => c.body(DOCS_JS, 200, { 'content-type': 'text/javascript' }))
  app.get('/docs/:file', async (c, next) => {
    const file = c.req.param('file')
    const type = SWAGGER_FILES[file]
    if (type === undefined) return next()
    return c.body(await readFile(join(swagger, file)), 200, {
      'content-type': `${type}; charset=utf-8`,
      'cache-control': 'max-age=3600',
    })
  })
  return app
}

const DOCS_PAGE = page(
  'The desk’s API',
  `<div id="api">Loading …</div>
<link rel="stylesheet" href="/docs/swagger-ui.css">
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>`,
  // Swagger UI knows no dark.
  'light',
)

function requestsPage(origin: string): string {
  const examples = curls(origin).map(
    ({ title, lines }) => `<h2>${text(title)}</h2><pre><code>${text(lines.join('\n'))}</code></pre>`,
  )
  return page(
    'The desk',
    `<h1>The desk</h1>
<p>Five systems that go wrong under concurrency, and do not here: <b>trades</b> in strict order, <b>instances</b> moved by one request at a
time, <b>positions</b> created exactly once at an exchange, <b>transfers</b> in books that balance, <b>wallets</b> in auctions.</p>
<ul>
<li><a href="/">The start page</a>: the race, live</li>
<li><a href="/docs">Try the API</a>, or read its <a href="/openapi.json">OpenAPI document</a></li>
<li><a href="/console">The console</a>: locks, leases and the outbox, live</li>
<li><a href="/check">Whether every invariant holds, now</a></li>
<li><a href="/portfolios">Portfolios, and the published log of each</a></li>
<li><a href="/instances/locked">Instances that are worked on just now</a></li>
<li><a href="/metrics">Metrics</a>, <a href="/health">health</a> and <a href="/ready">readiness</a> of this process</li>
</ul>
${examples.join('\n')}`,
  )
}
