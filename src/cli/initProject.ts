import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { prismaClientOf } from './initPrisma.ts'
import type { DriverName } from './loadDriver.ts'
import { UsageError } from './usageError.ts'

/** The ORMs and query builders whose use a first file can show, each through its entry point. */
export type OrmName =
  | 'drizzle-orm'
  | 'kysely'
  | 'knex'
  | '@prisma/client'
  | 'typeorm'
  | '@mikro-orm/postgresql'
  | 'sequelize'
export type FrameworkName = 'nest' | 'next' | 'hono' | 'express' | 'fastify'

/** What the package.json of a project says about it. */
export interface Project {
  readonly driver: DriverName
  readonly orm: OrmName | undefined
  readonly framework: FrameworkName | undefined
  /** Where the generated client of Prisma is imported from. */
  readonly prismaClient: string | undefined
  readonly language: 'ts' | 'js'
  /** The first file, from the folder of the project. */
  readonly file: string
  /** What has to be installed first, and whether for development only. */
  readonly missing: readonly { readonly name: string; readonly dev: boolean }[]
  /** How a package is installed here. */
  readonly add: string
}

interface Manifest {
  readonly type?: string
  readonly dependencies?: Readonly<Record<string, string>>
  readonly devDependencies?: Readonly<Record<string, string>>
}

/** Most have no driver for postgres.js. */
const ORMS: readonly { readonly name: OrmName; readonly drivers: readonly DriverName[] }[] = [
  { name: 'drizzle-orm', drivers: ['pg', 'postgres'] },
  { name: 'kysely', drivers: ['pg', 'postgres'] },
  { name: 'knex', drivers: ['pg'] },
  { name: '@prisma/client', drivers: ['pg'] },
  { name: 'typeorm', drivers: ['pg'] },
  { name: '@mikro-orm/postgresql', drivers: ['pg'] },
  { name: 'sequelize', drivers: ['pg'] },
]

/** In this order: a project of NestJS has Express or Fastify as well, and one of Next.js may. */
const FRAMEWORKS: readonly { readonly name: FrameworkName; readonly package: string }[] = [
  { name: 'nest', package: '@nestjs/core' },
  ...(['next', 'hono', 'express', 'fastify'] as const).map((name) => ({ name, package: name })),
]

const ADD: Readonly<Record<string, string>> = {
  'pnpm-lock.yaml': 'pnpm add',
  'yarn.lock': 'yarn add',
  'bun.lock': 'bun add',
  'bun.lockb': 'bun add',
}

/** Reads what the project in this folder uses. */
export function readProject(folder: string, wanted: DriverName | undefined): Project {
  const manifest = readManifest(folder)
  const packages = { ...manifest.devDependencies, ...manifest.dependencies }
  const has = (name: string): boolean => name in packages
  const there = (name: string): boolean => existsSync(join(folder, name))
  const driver = wanted ?? (!has('pg') && has('postgres') ? 'postgres' : 'pg')
  const language = has('typescript') || there('tsconfig.json') ? 'ts' : 'js'
  // NestJS needs decorators, which JavaScript does not have.
  const framework = FRAMEWORKS.find((each) => has(each.package) && (each.name !== 'nest' || language === 'ts'))?.name
  // The package is ESM. A bundler takes it as it is; NestJS with CommonJS loads it by require().
  const isModule = manifest.type === 'module' || framework === 'next' || framework === 'nest'
  const name = `lockstep.${isModule ? '' : 'm'}${language}`
  const file = there('src') ? `src/${name}` : name
  const prismaClient = has('@prisma/client') ? prismaClientOf(folder, dirname(file), framework === 'next') : undefined
  const canUse = (orm: OrmName): boolean => has(orm) && (orm !== '@prisma/client' || prismaClient !== undefined)
  const orm = ORMS.find(({ name: each, drivers }) => canUse(each) && drivers.includes(driver))?.name
  const needed = [
    { name: 'pg-lockstep', dev: false },
    { name: driver, dev: false },
    ...(orm === '@prisma/client' ? [{ name: '@prisma/adapter-pg', dev: false }] : []),
    ...(driver === 'pg' && language === 'ts' ? [{ name: '@types/pg', dev: true }] : []),
  ]
  const lockfile = Object.keys(ADD).find(there)
  return {
    driver,
    orm,
    framework,
    prismaClient,
    language,
    file,
    missing: needed.filter((each) => !has(each.name)),
    add: lockfile === undefined ? 'npm install' : (ADD[lockfile] ?? ''),
  }
}

function readManifest(folder: string): Manifest {
  try {
    return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Manifest
  } catch (error) {
    const why = error instanceof SyntaxError ? 'The package.json is not JSON' : 'There is no package.json'
    throw new UsageError(`${why} in ${folder}.`, 'Start it where your application is, or run `npm init` first.')
  }
}
