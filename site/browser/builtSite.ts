import { createServer, type Server } from 'node:http'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { readdir, readFile, stat } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { extname, join } from 'node:path'
import { root } from '../../tools/check/repository.ts'

const dist = join(root, 'site', 'dist')

/** The pages of the built site: `guides/kafka.html`. */
export async function builtPages(): Promise<string[]> {
  if (!existsSync(dist)) throw new Error('The site is not built. Run npm run docs:build first.')
  return (await builtFiles()).filter((path) => path.endsWith('.html')).toSorted()
}

export async function builtFiles(): Promise<string[]> {
  const entries = await readdir(dist, { recursive: true, withFileTypes: true })
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(dist.length + 1))
}

export function readBuilt(path: string): Promise<string> {
  return readFile(join(dist, path), 'utf8')
}

export async function builtBytes(): Promise<number> {
  const sizes = await Promise.all((await builtFiles()).map(async (path) => (await stat(join(dist, path))).size))
  return sizes.reduce((sum, size) => sum + size, 0)
}

const contentTypes: Readonly<Record<string, string>> = {
  '.css': 'text/css',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.json': 'application/json',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
  '.yml': 'text/yaml',
}

/** Serves the site as a plain static host does: no rewriting, 404 for what is not there. */
export async function serveBuilt(): Promise<{ readonly url: string; close(): Promise<void> }> {
  const server: Server = createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url ?? '/', 'http://site').pathname)
    const file = path.endsWith('/') ? `${path}index.html` : path
    readFile(join(dist, file)).then(
      (body) => response.setHeader('content-type', contentTypes[extname(file)] ?? 'application/octet-stream').end(body),
      () => response.writeHead(404).end(),
    )
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}
