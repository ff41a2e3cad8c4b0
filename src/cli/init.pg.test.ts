import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
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
  /** What stands in them, by name. The others are empty. */
  readonly texts?: Readonly<Record<string, string>>
  readonly expected: {
    readonly file: string
    readonly driver: string
    readonly orm?: string
    readonly framework?: string
  }
}

const MODULE = { type: 'module' } as const

const generatedClient = join(root, 'tools/orms/prisma/generated')

/** As `prisma init` writes it, for the client that the tests of ORMs have generated. */
const PRISMA_SCHEMA = `
generator json {
  provider = "prisma-json-types-generator"
}

generator client {
  provider            = "prisma-client"
  output              = "OUTPUT"
  importFileExtension = "ts"
}

datasource db {
  provider = "postgresql"
}
`

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
  {
    name: 'prisma-hono',
    packages: ['pg', '@prisma/client', 'hono', 'typescript'],
    ...MODULE,
    files: ['src/index.ts'],
    texts: { 'prisma/schema.prisma': PRISMA_SCHEMA },
    expected: { file: 'src/lockstep.ts', driver: 'pg', orm: '@prisma/client', framework: 'hono' },
  },
  {
    name: 'prisma-without-its-schema',
    packages: ['pg', '@prisma/client'],
    ...MODULE,
    expected: { file: 'lockstep.js', driver: 'pg' },
  },
  {
    name: 'typeorm-express',
    packages: ['pg', 'typeorm', 'express', 'typescript'],
    ...MODULE,
    expected: { file: 'lockstep.ts', driver: 'pg', orm: 'typeorm', framework: 'express' },
  },
  {
    name: 'mikro-orm-fastify',
    packages: ['@mikro-orm/postgresql', 'fastify', 'typescript'],
    ...MODULE,
    expected: { file: 'lockstep.ts', driver: 'pg', orm: '@mikro-orm/postgresql', framework: 'fastify' },
  },
  {
    name: 'sequelize-javascript',
    packages: ['pg', 'sequelize'],
    expected: { file: 'lockstep.mjs', driver: 'pg', orm: 'sequelize' },
  },
  {
    name: 'nest',
    packages: ['pg', '@nestjs/core', 'express', 'typescript'],
    ...MODULE,
    files: ['src/main.ts'],
    expected: { file: 'src/lockstep.ts', driver: 'pg', framework: 'nest' },
  },
  {
    name: 'nest-kysely-postgres-js',
    packages: ['postgres', 'kysely', '@nestjs/core', 'typescript'],
    ...MODULE,
    expected: { file: 'lockstep.ts', driver: 'postgres', orm: 'kysely', framework: 'nest' },
  },
  {
    name: 'nest-sequelize',
    packages: ['pg', 'sequelize', '@nestjs/core', 'typescript'],
    ...MODULE,
    expected: { file: 'lockstep.ts', driver: 'pg', orm: 'sequelize', framework: 'nest' },
  },
  {
    name: 'nest-javascript',
    packages: ['pg', '@nestjs/core', 'express'],
    expected: { file: 'lockstep.mjs', driver: 'pg', framework: 'express' },
  },
]

/** In the repository, so that drivers, frameworks and the library are found from there. */
let folder = ''
beforeAll(() => {
  mkdirSync(join(root, '.lockstep'), { recursive: true })
  folder = mkdtempSync(join(root, '.lockstep', 'init-'))
  mkdirSync(join(folder, 'node_modules', '@mikro-orm'), { recursive: true })
  for (const orm of ['drizzle-orm', 'kysely', 'knex', 'typeorm', '@mikro-orm/postgresql', 'sequelize'])
    symlinkSync(join(root, 'tools/orms/node_modules', orm), join(folder, 'node_modules', orm))
  for (const sample of SAMPLES) plant(sample)
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

function plant({ name, packages, type, files = [], texts = {} }: Sample): string {
  const project = join(folder, name)
  mkdirSync(join(project, 'src'), { recursive: true })
  if (!files.some((file) => file.startsWith('src/'))) rmSync(join(project, 'src'), { recursive: true })
  const dependencies = Object.fromEntries(packages.map((each) => [each, '*']))
  writeFileSync(join(project, 'package.json'), JSON.stringify({ ...(type !== undefined && { type }), dependencies }))
  for (const file of files) writeFileSync(join(project, file), file.endsWith('.json') ? '{}' : '')
  for (const [file, text] of Object.entries(texts)) {
    const place = dirname(join(project, file))
    mkdirSync(place, { recursive: true })
    writeFileSync(join(project, file), text.replace('OUTPUT', relative(place, generatedClient)))
  }
  return project
}

/** As a project of Nest is compiled. */
const FOR_NEST = { experimentalDecorators: true, emitDecoratorMetadata: true }

function configure(settings: object): void {
  const config = { extends: join(root, 'tsconfig.json'), ...settings }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config))
}

async function compile(settings: object): Promise<string> {
  configure(settings)
  return (await command(tool('tsc'), ['--noEmit', '--pretty', 'false', '-p', folder], { cwd: folder })).output
}

const without = ormsAreInstalled() ? undefined : 'the ORMs are not installed'

/** Calls what a file exports, as its project would. */
const CALLS = `
  import { once } from 'node:events'
  const results = []
  for (const { file, framework } of JSON.parse(process.env.FILES)) {
    const { example, routes, POST, close, ExampleModule } = await import(file)
    if (framework === 'nest') {
      const { NestFactory } = await import('@nestjs/core')
      const app = await NestFactory.create(ExampleModule, { logger: false })
      await app.listen(0, '127.0.0.1')
      const response = await fetch(await app.getUrl() + '/example/b', { method: 'POST' })
      results.push({ file, route: await response.json() })
      await app.close()
      continue
    }
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
      (await compile({ include: ['*/**/*.ts', '*/**/*.mts'], exclude: forNext, compilerOptions: FOR_NEST })) +
      (await compile({ include: forNext, exclude: [], compilerOptions: bundled }))
    expect(output).toBe('')
  })

  test('writes files that run', { timeout: 480_000 }, async ({ skip }) => {
    if (without !== undefined) skip(without)
    const program = join(folder, 'calls.mjs')
    writeFileSync(program, CALLS)
    // tsx has no settings for files that are not included.
    configure({ include: ['**/*'], compilerOptions: FOR_NEST })
    const files = SAMPLES.map(({ name, expected: { file, framework } }) => ({
      file: join(folder, name, file),
      framework,
    }))
    const { stdout } = await promisify(execFile)(process.execPath, ['--import', 'tsx', program], {
      cwd: root,
      env: {
        ...process.env,
        DATABASE_URL: database.url,
        FILES: JSON.stringify(files),
        TSX_TSCONFIG_PATH: join(folder, 'tsconfig.json'),
      },
    })
    const results = JSON.parse(stdout) as { file: string; example?: string; route?: { now: string } }[]
    expect(results.map(({ file }) => file)).toEqual(files.map(({ file }) => file))
    for (const [place, { example, route }] of results.entries()) {
      const framework = files[place]?.framework
      if (framework !== 'nest') expect(example).toMatch(/^\d{4}-\d\d-\d\d /)
      if (framework !== undefined) expect(route?.now).toMatch(/^\d{4}-\d\d-\d\d /)
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
