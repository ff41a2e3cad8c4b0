/**
 * Every ```ts block of the documentation compiles, and declares what it uses. Only `lockstep` and `pool` can come from elsewhere; then the
 * page links to where they are created. "Save it as `trades.ts`" makes the block before it a file that the later blocks of the page can import.
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

/** What Prisma has generated. Its page imports it from beside the program. */
const PRISMA_CLIENT = 'prisma-client.ts'

interface Block {
  /** The name under which the page saves it. */
  readonly savedAs?: string | undefined
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
    savedAs: /^\s*Save it as `([\w-]+\.ts)`/.exec(text.slice(match.index + match[0].length))?.[1],
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
  await copyFile(join(root, 'examples', 'orms', PRISMA_CLIENT), join(directory, PRISMA_CLIENT))
  await writeFile(
    join(directory, 'tsconfig.json'),
    JSON.stringify({
      extends: join(root, 'tsconfig.json'),
      // Those of NestJS.
      compilerOptions: { experimentalDecorators: true },
      include: ['**/*.ts'],
      exclude: [],
    }),
  )
  for (const { page, line, code, savedAs } of blocks) {
    const folder = join(directory, page.replaceAll('/', '__'))
    await mkdir(folder, { recursive: true })
    if (code.includes(PRISMA_CLIENT)) {
      await writeFile(join(folder, PRISMA_CLIENT), `export * from '../${PRISMA_CLIENT}'\n`)
    }
    // As many empty lines as stand before it in the page: the compiler then names the page's own line.
    await writeFile(join(folder, `${line}.ts`), `${'\n'.repeat(line - 1)}${code}\nexport {}\n`)
    if (savedAs !== undefined) await writeFile(join(folder, savedAs), code)
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

test('has no block that the compiler would not read', async () => {
  const texts = await Promise.all((await pages()).map(async (page) => [page, await readFile(join(root, page), 'utf8')]))
  expect(texts.filter(([, text = '']) => /^ *```(?:tsx?|typescript) +\S/m.test(text)).map(([page]) => page)).toEqual([])
})

test('says for each platform what was run, what follows from its documentation, and what the doctor checks', async () => {
  const platforms = (await pages()).filter((page) => /^docs\/platforms\/(?!README)/.test(page))
  const overview = await readFile(join(root, 'docs/platforms/README.md'), 'utf8')
  expect(platforms).toHaveLength(12)
  for (const page of platforms) {
    const text = await readFile(join(root, page), 'utf8')
    const sections = [...text.matchAll(/^## (.*)$/gm)].map(([, heading]) => heading)
    expect([page, ...sections]).toEqual([
      page,
      'What was run',
      'What follows from its documentation',
      'What the doctor checks',
    ])
    // The source of what it says about the vendor.
    expect([page, /\]\(https:\/\//.test(text)]).toEqual([page, true])
    expect(overview).toContain(`](${page.replace('docs/platforms/', '')})`)
  }
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
