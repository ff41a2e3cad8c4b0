import { createHash } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import { answer } from './responses.ts'
import type { PageContent } from './pageContents.ts'

const CONTENT_TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  json: 'application/json',
  txt: 'text/plain; charset=utf-8',
}

const NOT_BUILT = `The console's page is not built. Run "npm run build:page" and load this again.\n`

interface PageFile {
  readonly contentType: string
  readonly plain: Uint8Array<ArrayBuffer>
  readonly packed: Uint8Array<ArrayBuffer>
  readonly etag: string
  readonly cacheControl: string
}

/** The files of the built page, all in memory: what is not among them by its exact name cannot be asked for. */
export class PageFiles {
  readonly #read: () => readonly PageContent[]
  #files: ReadonlyMap<string, PageFile>

  constructor(read: () => readonly PageContent[]) {
    this.#read = read
    this.#files = prepare(read())
  }

  /**
   * `path` is below the mount, without a slash at its beginning; '' is the page. `packs`: the file can be sent compressed. Undefined: there
   * is no such file.
   */
  serve(path: string, request: Request, packs = true): Response | undefined {
    // Built only after the start, as happens during development.
    if (this.#files.size === 0) this.#files = prepare(this.#read())
    if (this.#files.size === 0) {
      return answer(503, NOT_BUILT, { 'content-type': 'text/plain; charset=utf-8', 'cache-control': 'no-store' })
    }
    const file = this.#files.get(path === '' ? 'index.html' : path)
    if (file === undefined) return undefined
    const { contentType, etag, cacheControl } = file
    const headers = { etag, 'cache-control': cacheControl, vary: 'accept-encoding' }
    if (request.headers.get('if-none-match') === etag) return answer(304, null, headers)
    const packed = packs && /\bgzip\b/.test(request.headers.get('accept-encoding') ?? '') ? file.packed : undefined
    return answer(200, request.method === 'HEAD' ? null : (packed ?? file.plain), {
      ...headers,
      'content-type': contentType,
      ...(packed !== undefined && { 'content-encoding': 'gzip' }),
    })
  }
}

function prepare(contents: readonly PageContent[]): ReadonlyMap<string, PageFile> {
  const files = new Map<string, PageFile>()
  for (const { path, text } of contents) {
    const contentType = CONTENT_TYPES[/\.(\w+)$/.exec(path)?.[1] ?? '']
    if (contentType === undefined) continue
    const plain = new TextEncoder().encode(text)
    files.set(path, {
      contentType,
      plain,
      packed: new Uint8Array(gzipSync(plain, { level: 9 })),
      etag: `"${createHash('sha256').update(plain).digest('base64url').slice(0, 22)}"`,
      // Names of assets carry their content's hash.
      cacheControl: path.startsWith('assets/') ? 'public, max-age=31536000, immutable' : 'no-cache',
    })
  }
  return files.has('index.html') ? files : new Map()
}
