import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'

const ROOT = join(import.meta.dirname, '../..')

async function textsIn(directory: string): Promise<(readonly [string, string])[]> {
  const found = await readdir(join(ROOT, directory), { recursive: true })
  const names = found.filter((name) => /\.(md|ts|tsx)$/.test(name) && !/conformance|\.test/.test(name))
  return Promise.all(names.map(async (name) => [name, await readFile(join(ROOT, directory, name), 'utf8')] as const))
}

/** What a client fills in by itself. */
const CLIENT_SAYS = /\bscope\b[^\n]*(?:x-tenant|\.get\(|\.header\(|headers\b|\.body\b|\.query\b|\.params\b)/i

test('has no example that takes the scope from the client', async () => {
  const texts = [
    ['README.md', await readFile(join(ROOT, 'README.md'), 'utf8')] as const,
    ...(await Promise.all(['docs', 'examples', 'desk', 'src/http', 'proofs/attacks'].map(textsIn))).flat(),
  ]
  const scopes = texts.flatMap(([name, text]) =>
    text
      .split('\n')
      .filter((line) => /\bscope\b\s*[:=(]/.test(line))
      .map((line) => `${name}: ${line.trim()}`),
  )
  expect(scopes.length).toBeGreaterThan(4)
  expect(scopes.filter((line) => CLIENT_SAYS.test(line))).toEqual([])
})
