import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { DriverName } from './loadDriver.ts'
import { UsageError } from './usageError.ts'

/** The query builders whose use a first file can show, each through its entry point. */
export type OrmName = 'drizzle-orm' | 'kysely' | 'knex'
export type FrameworkName = 'next' | 'hono' | 'express' | 'fastify'

/** What the package.json of a project says about it. */
export interface Project {
  readonly driver: DriverName
  readonly orm: OrmName | undefined
  readonly framework: FrameworkName | undefined
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

/** Knex has no driver for postgres.js. */
const ORMS: readonly { readonly name: OrmName; readonly drivers: readonly DriverName[] }[] = [
  { name: 'drizzle-orm', drivers: ['pg', 'postgres'] },
  { name: 'kysely', drivers: ['pg', 'postgres'] },
  { name: 'knex', drivers: ['pg'] },
]

/** In this order: a project of Next.js may have another one as well. */
const FRAMEWORKS: readonly FrameworkName[] = ['next', 'hono', 'express', 'fastify']

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
  const orm = ORMS.find(({ name, drivers }) => has(name) && drivers.includes(driver))?.name
  const framework = FRAMEWORKS.find(has)
  const language = has('typescript') || there('tsconfig.json') ? 'ts' : 'js'
  // The package is ESM. A bundler takes it as it is.
  const isModule = manifest.type === 'module' || framework === 'next'
  const name = `lockstep.${isModule ? '' : 'm'}${language}`
  const needed = [
    { name: 'pg-lockstep', dev: false },
    { name: driver, dev: false },
    ...(driver === 'pg' && language === 'ts' ? [{ name: '@types/pg', dev: true }] : []),
  ]
  const lockfile = Object.keys(ADD).find(there)
  return {
    driver,
    orm,
    framework,
    language,
    file: there('src') ? `src/${name}` : name,
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
