import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { command } from '../../tools/check/command.ts'
import { root, tool } from '../../tools/check/repository.ts'
import { ormsAreInstalled } from '../../tools/orms/load.ts'
import { runCommand } from '../../tools/server/testing/commandLine.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { initialize } from './init.ts'

const database = await testDatabase()

interface Sample {
  readonly name: string
  readonly packages: readonly string[]
  readonly type?: 'module'
  readonly files?: readonly string[]
  readonly expected: {
    readonly file: string
    readonly driver: string
    readonly orm?: string
    readonly framework?: string
  }
}

const MODULE = { type: 'module' } as const

const SAMPLES: readonly Sample[] = [
  { name: 'nothing', packages: [], expected: { file: 'lockstep.mjs', driver: 'pg' } },
  {
    name: 'postgres-js',
    packages: ['postgres', 'hono'],
    ...MODULE,
    expected: { file: 'lockstep.js', driver: 'postgres', framework: 'hono' },
  },
  {
    name: 'javascript-express',
    packages: ['pg', 'knex', 'express'],
    files: ['src/server.js'],
    expected: { file: 'src/lockstep.mjs', driver: 'pg', orm: 'knex', framework: 'express' },
  },
  {
    name: 'drizzle-hono',
    packages: ['pg', 'postgres', 'drizzle-orm', 'hono', 'typescript'],
    ...MODULE,
    expected: { file: 'lockstep.ts', driver: 'pg', orm: 'drizzle-orm', framework: 'hono' },
  },
  {
    name: 'drizzle-postgres-js',
    packages: ['postgres', 'drizzle-orm', 'kysely', 'fastify', 'typescript'],
    ...MODULE,
    expected: { file: 'lockstep.ts', driver: 'postgres', orm: 'drizzle-orm', framework: 'fastify' },
  },
  {
    name: 'kysely-express',
    packages: ['pg', 'kysely', 'express'],
    ...MODULE,
    files: ['tsconfig.json', 'src/index.ts'],
    expected: { file: 'src/lockstep.ts', driver: 'pg', orm: 'kysely', framework: 'express' },
  },
  {
    name: 'kysely-postgres-js-next',
    packages: ['postgres', 'kysely', 'next', 'typescript'],
    expected: { file: 'lockstep.ts', driver: 'postgres', orm: 'kysely', framework: 'next' },
  },
  {
    name: 'knex-fastify',
    packages: ['pg', 'knex', 'fastify', 'typescript'],
    expected: { file: 'lockstep.mts', driver: 'pg', orm: 'knex', framework: 'fastify' },
  },
  {
    name: 'next',
    packages: ['pg', 'next', 'typescript'],
    expected: { file: 'lockstep.ts', driver: 'pg', framework: 'next' },
  },
]

/** In the repository, so that drivers, frameworks and the library are found from there. */
let folder = ''
beforeAll(() => {
  mkdirSync(join(root, '.lockstep'), { recursive: true })
  folder = mkdtempSync(join(root, '.lockstep', 'init-'))
  mkdirSync(join(folder, 'node_modules'))
  for (const orm of ['drizzle-orm', 'kysely', 'knex'])
    symlinkSync(join(root, 'tools/orms/node_modules', orm), join(folder, 'node_modules', orm))
  for (const sample of SAMPLES) plant(sample)
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

function plant({ name, packages, type, files = [] }: Sample): string {
  const project = join(folder, name)
  mkdirSync(join(project, 'src'), { recursive: true })
  if (!files.some((file) => file.startsWith('src/'))) rmSync(join(project, 'src'), { recursive: true })
  const dependencies = Object.fromEntries(packages.map((each) => [each, '*']))
  writeFileSync(join(project, 'package.json'), JSON.stringify({ ...(type !== undefined && { type }), dependencies }))
  for (const file of files) writeFileSync(join(project, file), file.endsWith('.json') ? '{}' : '')
  return project
}

async function compile(settings: object): Promise<string> {
  const config = { extends: join(root, 'tsconfig.json'), ...settings }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config))
  return (await command(tool('tsc'), ['--noEmit', '--pretty', 'false', '-p', folder], { cwd: folder })).output
}

const without = ormsAreInstalled() ? undefined : 'the ORMs are not installed'

/** Calls what a file exports, as its project would. */
const CALLS = `
  import { once } from 'node:events'
  const results = []
  for (const { file, framework } of JSON.parse(process.env.FILES)) {
    const { example, routes, POST, close } = await import(file)
    const answer = { file, example: await example('a') }
    if (framework === 'hono') answer.route = await (await routes.request('/example/b', { method: 'POST' })).json()
    if (framework === 'next') answer.route = await (await POST(new Request('http://x/?name=b', { method: 'POST' }))).json()
    if (framework === 'fastify') {
      const app = (await import('fastify')).default()
      await app.register(routes)
      answer.route = (await app.inject({ method: 'POST', url: '/example/b' })).json()
    }
    if (framework === 'express') {
      const app = (await import('express')).default()
      app.use(routes)
      const server = app.listen(0)
      await once(server, 'listening')
      answer.route = await (await fetch('http://127.0.0.1:' + server.address().port + '/example/b', { method: 'POST' })).json()
      server.close()
    }
    await close()
    // What the files for Next.js share.
    for (const name of ['lockstep', 'lockstepPool']) delete globalThis[name]
    results.push(answer)
  }
  console.log(JSON.stringify(results))
`

describe('init', () => {
  test.each(SAMPLES)('writes $expected.file for $name', ({ name, expected }) => {
    const { file, driver, orm, framework } = initialize(join(folder, name), undefined)
    expect({ file, driver, orm, framework }).toEqual({ orm: undefined, framework: undefined, ...expected })
  })

  test('writes files that compile', async ({ skip }) => {
    if (without !== undefined) skip(without)
    // As `create-next-app` sets it.
    const bundled = { module: 'esnext', moduleResolution: 'bundler', rewriteRelativeImportExtensions: false }
    const forNext = SAMPLES.flatMap(({ name, expected }) => (expected.framework === 'next' ? [name] : []))
    const output =
      (await compile({ include: ['*/**/*.ts', '*/**/*.mts'], exclude: forNext })) +
      (await compile({ include: forNext, exclude: [], compilerOptions: bundled }))
    expect(output).toBe('')
  })

  test('writes files that run', async ({ skip }) => {
    if (without !== undefined) skip(without)
    const program = join(folder, 'calls.mjs')
    writeFileSync(program, CALLS)
    const files = SAMPLES.map(({ name, expected: { file, framework } }) => ({
      file: join(folder, name, file),
      framework,
    }))
    const { stdout } = await promisify(execFile)(process.execPath, ['--import', 'tsx', program], {
      cwd: root,
      env: { ...process.env, DATABASE_URL: database.url, FILES: JSON.stringify(files) },
    })
    const results = JSON.parse(stdout) as { file: string; example: string; route?: { now: string } }[]
    expect(results.map(({ file }) => file)).toEqual(files.map(({ file }) => file))
    for (const [place, { example, route }] of results.entries()) {
      expect(example).toMatch(/^\d{4}-\d\d-\d\d /)
      if (files[place]?.framework !== undefined) expect(route?.now).toMatch(/^\d{4}-\d\d-\d\d /)
    }
  })

  test('overwrites nothing, and says what to do next', async () => {
    const project = plant({
      name: 'again',
      packages: [],
      files: ['yarn.lock', 'tsconfig.json'],
      expected: SAMPLES[0]!.expected,
    })
    const first = await runCommand(['init'], { cwd: project })
    expect(first).toMatchObject({ code: 0, stderr: '' })
    expect(first.stdout).toMatch(
      /^lockstep\.mts is written, for pg\. Next:\n {2}yarn add pg-lockstep pg\n {2}yarn add -D @types\/pg\n {2}export DATABASE_URL=/,
    )
    const file = join(project, 'lockstep.mts')
    writeFileSync(file, 'mine')
    const second = await runCommand(['init', '--json'], { cwd: project })
    expect(second.code).toBe(1)
    expect(JSON.parse(second.stdout)).toMatchObject({ ok: false, error: { code: 'FILE_EXISTS' } })
    expect(readFileSync(file, 'utf8')).toBe('mine')
  })

  test('needs a package.json', () => {
    expect(() => initialize(join(folder, 'node_modules'), undefined)).toThrow(/^There is no package\.json in /)
  })
})
