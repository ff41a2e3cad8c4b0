import { createHash } from 'node:crypto'
import { type Dirent, readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { join, sep } from 'node:path'
import { gzipSync } from 'node:zlib'
import { answer } from './answers.ts'

const CONTENT_TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  json: 'application/json',
  txt: 'text/plain; charset=utf-8',
  png: 'image/png',
  ico: 'image/x-icon',
}
const PACKED: ReadonlySet<string> = new Set(['html', 'js', 'css', 'svg', 'json', 'txt'])

const NOT_BUILT = `The console's page is not built. Run "npm run build:page" and load this again.\n`

interface PageFile {
  readonly contentType: string
  readonly plain: Uint8Array<ArrayBuffer>
  readonly packed: Uint8Array<ArrayBuffer> | undefined
  readonly etag: string
  readonly cacheControl: string
}

/** In the package it stands beside this file, in the repository it is where it is built. */
export function pageFolder(): string {
  const place = import.meta.url.endsWith('.ts') ? '../../console/dist/' : './page/'
  return fileURLToPath(new URL(place, import.meta.url))
}

/** The files of the built page, all in memory: what is not among them by its exact name cannot be asked for. */
export class PageFiles {
  readonly #folder: string
  #files: ReadonlyMap<string, PageFile>

  constructor(folder: string) {
    this.#folder = folder
    this.#files = readAll(folder)
  }

  /** `path` is below the mount, without a slash at its beginning; '' is the page. Undefined: there is no such file. */
  serve(path: string, request: Request): Response | undefined {
    // Built only after the start, as happens while somebody works on it.
    if (this.#files.size === 0) this.#files = readAll(this.#folder)
    if (this.#files.size === 0) {
      return answer(503, NOT_BUILT, { 'content-type': 'text/plain; charset=utf-8', 'cache-control': 'no-store' })
    }
    const file = this.#files.get(path === '' ? 'index.html' : path)
    if (file === undefined) return undefined
    const { contentType, etag, cacheControl } = file
    const headers = { etag, 'cache-control': cacheControl, vary: 'accept-encoding' }
    if (request.headers.get('if-none-match') === etag) return answer(304, null, headers)
    const packed = /\bgzip\b/.test(request.headers.get('accept-encoding') ?? '') ? file.packed : undefined
    return answer(200, request.method === 'HEAD' ? null : (packed ?? file.plain), {
      ...headers,
      'content-type': contentType,
      ...(packed !== undefined && { 'content-encoding': 'gzip' }),
    })
  }
}

function readAll(folder: string): ReadonlyMap<string, PageFile> {
  const files = new Map<string, PageFile>()
  for (const entry of entriesOf(folder)) {
    if (!entry.isFile()) continue
    const full = join(entry.parentPath, entry.name)
    const path = full.slice(join(folder, sep).length).replaceAll(sep, '/')
    const ending = /\.(\w+)$/.exec(entry.name)?.[1] ?? ''
    const contentType = CONTENT_TYPES[ending]
    if (contentType === undefined) continue
    const plain = new Uint8Array(readFileSync(full))
    files.set(path, {
      contentType,
      plain,
      packed: PACKED.has(ending) ? new Uint8Array(gzipSync(plain, { level: 9 })) : undefined,
      etag: `"${createHash('sha256').update(plain).digest('base64url').slice(0, 22)}"`,
      // Names of assets carry their content's hash.
      cacheControl: path.startsWith('assets/') ? 'public, max-age=31536000, immutable' : 'no-cache',
    })
  }
  return files.has('index.html') ? files : new Map()
}

function entriesOf(folder: string): Dirent[] {
  try {
    return readdirSync(folder, { recursive: true, withFileTypes: true })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}
