import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { afterAll, expect, test } from 'vitest'
import { pageContents } from './pageContents.ts'
import { PageFiles } from './pageFiles.ts'

const folder = mkdtempSync(join(tmpdir(), 'lockstep-page-'))
afterAll(() => rmSync(folder, { recursive: true }))

const request = (headers: Record<string, string> = {}, method = 'GET'): Request =>
  new Request('http://localhost/', { headers, method })

test('reports a page that is not built, and finds it later', async () => {
  const files = new PageFiles(() => pageContents(join(folder, 'page')))
  const missing = files.serve('', request())
  expect([missing?.status, await missing?.text()]).toEqual([503, expect.stringContaining('npm run build:page')])
  mkdirSync(join(folder, 'page/assets'), { recursive: true })
  writeFileSync(join(folder, 'secret.txt'), 'secret')
  writeFileSync(join(folder, 'page/index.html'), '<!doctype html>')
  writeFileSync(join(folder, 'page/icon.svg'), '<svg/>')
  writeFileSync(join(folder, 'page/assets/index-a1b2.js'), 'run()')
  writeFileSync(join(folder, 'page/assets/index-a1b2.js.map'), '{}')
  expect(files.serve('', request())?.status).toBe(200)
})

test('serves only files of the folder, by their exact names', () => {
  const files = new PageFiles(() => pageContents(join(folder, 'page')))
  for (const path of ['index.html', 'icon.svg', 'assets/index-a1b2.js']) {
    expect(files.serve(path, request())?.status, path).toBe(200)
  }
  for (const path of [
    '../secret.txt',
    '..%2fsecret.txt',
    '%2e%2e/secret.txt',
    'assets/../../secret.txt',
    'assets/',
    'assets',
    './icon.svg',
    '/icon.svg',
    'icon.svg\0',
    'assets/index-a1b2.js.map',
    '__proto__',
    'constructor',
  ]) {
    expect(files.serve(path, request()), path).toBeUndefined()
  }
})

test('lets browsers cache assets, but not the page', async () => {
  const files = new PageFiles(() => pageContents(join(folder, 'page')))
  const asset = files.serve('assets/index-a1b2.js', request())
  expect(asset?.headers.get('cache-control')).toBe('public, max-age=31536000, immutable')
  expect(asset?.headers.get('content-type')).toBe('text/javascript; charset=utf-8')
  const page = files.serve('', request())
  expect(page?.headers.get('cache-control')).toBe('no-cache')
  expect(page?.headers.get('content-type')).toBe('text/html; charset=utf-8')
  const etag = page?.headers.get('etag') ?? ''
  expect(files.serve('', request({ 'if-none-match': etag }))?.status).toBe(304)
  expect(files.serve('', request({ 'if-none-match': '"another"' }))?.status).toBe(200)
  const head = files.serve('', request({}, 'HEAD'))
  expect([head?.status, await head?.text()]).toEqual([200, ''])
})

test('compresses for clients that accept it', async () => {
  const files = new PageFiles(() => pageContents(join(folder, 'page')))
  const packed = files.serve('', request({ 'accept-encoding': 'br, gzip' }))
  expect(packed?.headers.get('content-encoding')).toBe('gzip')
  expect(gunzipSync(await (packed as Response).arrayBuffer()).toString()).toBe('<!doctype html>')
  const plain = files.serve('', request())
  expect([plain?.headers.get('content-encoding'), await plain?.text()]).toEqual([null, '<!doctype html>'])
  const behindFetch = files.serve('', request({ 'accept-encoding': 'br, gzip' }), false)
  expect([behindFetch?.headers.get('content-encoding'), await behindFetch?.text()]).toEqual([null, '<!doctype html>'])
})
