import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, relative } from 'node:path'
import { areInstalled, install, pinnedVersions } from '../dependencies.ts'

const folder = import.meta.dirname
const rootModules = join(folder, '..', '..', 'node_modules')
const prisma = join(folder, 'prisma')

/** Whether the ORMs are there: the build installs them where it can. */
export function ormsAreInstalled(): boolean {
  return areInstalled(folder) && linked().every(isLinked) && clientIsGenerated()
}

/**
 * Installs the ORMs when one of them is missing or of another version than is pinned, and makes them visible to everything in the
 * repository: a link in the root's node_modules for each. `npm install` removes these links, as they are in no lockfile of the root; they are
 * made again.
 */
export function ensureOrms(): void {
  if (!areInstalled(folder)) {
    process.stderr.write('installing the ORMs whose types the build reads\n')
    install(folder)
  }
  for (const name of linked()) link(name)
  if (!clientIsGenerated()) generateClient()
}

/** What the root has by itself stays the root's. */
function linked(): string[] {
  const root = JSON.parse(readFileSync(join(rootModules, '..', 'package.json'), 'utf8')) as {
    readonly devDependencies: Readonly<Record<string, string>>
  }
  return Object.keys(pinnedVersions(folder)).filter((name) => root.devDependencies[name] === undefined)
}

const placeOf = (name: string): string => join(rootModules, name)
const targetOf = (name: string): string => relative(dirname(placeOf(name)), join(folder, 'node_modules', name))

function isLinked(name: string): boolean {
  const place = placeOf(name)
  const found = lstatSync(place, { throwIfNoEntry: false })
  return found?.isSymbolicLink() === true && readlinkSync(place) === targetOf(name)
}

function link(name: string): void {
  if (isLinked(name)) return
  const place = placeOf(name)
  mkdirSync(dirname(place), { recursive: true })
  rmSync(place, { recursive: true, force: true })
  symlinkSync(targetOf(name), place)
}

const STAMP = join(prisma, 'generated', '.of')

/** The generated client is of this schema and this version of Prisma. */
function stamp(): string {
  const schema = readFileSync(join(prisma, 'schema.prisma'))
  return createHash('sha256')
    .update(schema)
    .update(String(pinnedVersions(folder)['prisma']))
    .digest('hex')
}

function clientIsGenerated(): boolean {
  return existsSync(STAMP) && readFileSync(STAMP, 'utf8') === stamp()
}

/** Prisma downloads its schema engine unless a variable names one. Generating a client does not run it. */
function generateClient(): void {
  const program = join(folder, 'node_modules', 'prisma', 'build', 'index.js')
  const env = { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: '1' }
  const { status, stdout, stderr } = spawnSync(process.execPath, [program, 'generate', '--schema', 'schema.prisma'], {
    cwd: prisma,
    env,
    encoding: 'utf8',
  })
  if (status !== 0) throw new Error(`prisma generate failed\n${stdout}${stderr}`)
  writeFileSync(STAMP, stamp())
}

const load = createRequire(import.meta.url)

/** The module of an ORM. Its types are stated by who uses it: it need not be there when the code is checked. */
// oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- as import() of a name that is known
export function loadOrm<Module>(name: string): Module {
  return load(name) as Module
}
