/**
 * Every ```ts block of the documentation compiles, and declares what it uses. Only `lockstep` and `pool` can come from elsewhere; then the
 * page links to where they are created. A block marked ```ts no-check is left out: it shows a type error, or a fragment that stands in no
 * program.
 */
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { command } from '../tools/check/command.ts'
import { root, tool } from '../tools/check/repository.ts'

/** What getting-started.md#5-in-a-service exports. A block that declares one of these itself has its own. */
const PRELUDE = `
import type pg from 'pg'
import type { EventMap, Lockstep } from 'pg-lockstep'

declare global {
  const pool: pg.Pool
  const lockstep: Lockstep<EventMap, pg.Pool>
}
`

interface Block {
  readonly page: string
  /** The line of its first line, from 1. */
  readonly line: number
  readonly code: string
}

const BLOCK = /^( *)```ts\n([^]*?)^ *```$/gm

async function pages(): Promise<string[]> {
  const found = await readdir(join(root, 'docs'), { recursive: true })
  const docs = found.filter((path) => path.endsWith('.md')).map((path) => `docs/${path}`)
  return ['README.md', 'ARCHITECTURE.md', ...docs.toSorted()]
}

async function blocksOf(page: string): Promise<Block[]> {
  const text = await readFile(join(root, page), 'utf8')
  return [...text.matchAll(BLOCK)].map((match) => ({
    page,
    line: text.slice(0, match.index).split('\n').length + 1,
    code: match[2] ?? '',
  }))
}

let directory = ''

beforeAll(async () => {
  await mkdir(join(root, '.lockstep'), { recursive: true })
  directory = await mkdtemp(join(root, '.lockstep', 'documentation-'))
})

afterAll(() => rm(directory, { recursive: true, force: true }))

async function compile(blocks: readonly Block[]): Promise<string> {
  await writeFile(join(directory, 'prelude.d.ts'), PRELUDE)
  // What Prisma has generated, beside the program that imports it.
  await copyFile(join(root, 'examples', 'orms', 'prisma-client.ts'), join(directory, 'prisma-client.ts'))
  await writeFile(
    join(directory, 'tsconfig.json'),
    JSON.stringify({
      extends: join(root, 'tsconfig.json'),
      // Those of NestJS.
      compilerOptions: { experimentalDecorators: true },
      include: ['*.ts'],
      exclude: [],
    }),
  )
  for (const { page, line, code } of blocks) {
    // As many empty lines as stand before it in the page: the compiler then names the page's own line.
    const name = `${page.replaceAll('/', '__')}__${line}.ts`
    await writeFile(join(directory, name), `${'\n'.repeat(line - 1)}${code}\nexport {}\n`)
  }
  const { code, output } = await command(tool('tsc'), ['--noEmit', '--pretty', 'false', '-p', directory], {
    cwd: directory,
  })
  return code === 0 ? '' : output.replaceAll('__', '/')
}

const SERVICE = 'getting-started.md#5-in-a-service'
const OWN = /\b(?:const|let) (?:\[|\{[^}]*)?NAME\b|\bNAME: (?:Lockstep|pg\.Pool|Pool)\b|\(NAME\) =>/.source

/** Whether a block uses the name without declaring it: as a variable or as a parameter. */
function borrows({ code }: Block, name: string): boolean {
  const text = code.replaceAll(/'[^'\n]*'|\/\/[^\n]*/g, '')
  const used = new RegExp(String.raw`(?<![.\w/-])${name}\b(?![\w:-])`).test(text)
  return used && !new RegExp(OWN.replaceAll('NAME', name)).test(code)
}

async function unexplained(page: string): Promise<string[]> {
  const text = await readFile(join(root, page), 'utf8')
  const first = (await blocksOf(page)).find((block) => borrows(block, 'lockstep') || borrows(block, 'pool'))
  if (first === undefined) return []
  const before = text.split('\n').slice(0, first.line).join('\n')
  return before.includes(SERVICE) ? [] : [`${page}:${first.line}`]
}

test('links to the service whose lockstep and pool the blocks of a page use, before the first of them', async () => {
  expect((await Promise.all((await pages()).map(unexplained))).flat()).toEqual([])
})

test('notices a block that uses what it does not declare', () => {
  const block = (code: string): Block => ({ page: 'docs/a.md', line: 1, code })
  expect(borrows(block('await lockstep.transaction({}, fn)'), 'lockstep')).toBe(true)
  expect(borrows(block('const lockstep = new Lockstep(sql)\nlockstep.close()'), 'lockstep')).toBe(false)
  expect(borrows(block('function f(lockstep: Lockstep) { lockstep.close() }'), 'lockstep')).toBe(false)
  expect(borrows(block(`import { key } from 'pg-lockstep'`), 'lockstep')).toBe(false)
  expect(borrows(block('await pool.query(text)'), 'pool')).toBe(true)
})

test('compiles every code block of the documentation', { timeout: 60_000 }, async () => {
  const blocks = (await Promise.all((await pages()).map(blocksOf))).flat()
  expect(blocks.some(({ page }) => page === 'README.md')).toBe(true)
  expect(await compile(blocks)).toBe('')
})

test('reports a block that does not compile, with its page and line', { timeout: 60_000 }, async () => {
  const code = `await lockstep.transaction({ lock: 'x' }, async () => 1)\n`
  const output = await compile([{ page: 'docs/wrong.md', line: 7, code }])
  expect(output).toContain('docs/wrong.md/7.ts(7,')
  expect(output).toContain('TS2322')
})
