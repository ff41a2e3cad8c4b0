import { cp, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { command, type CommandResult } from '../../check/command.ts'
import { installConsumer } from '../../check/consumer.ts'
import { root } from '../../check/repository.ts'
import { pinnedVersions } from '../../dependencies.ts'

const folder = join(import.meta.dirname, '..')
const examples = join(root, 'examples', 'orms')

/** What the users of each ORM install beside Lockstep, as its guide says. */
export const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  drizzle: ['pg', 'drizzle-orm'],
  knex: ['pg', 'knex'],
  kysely: ['pg', 'kysely'],
  'mikro-orm': ['pg', '@mikro-orm/core', '@mikro-orm/postgresql'],
  prisma: ['pg', '@prisma/client', '@prisma/adapter-pg'],
  sequelize: ['pg', 'sequelize'],
  typeorm: ['pg', 'typeorm'],
}

const MAIN = (name: string): string => `
import pg from 'pg'
import { run } from './${name}.ts'
const connectionString = process.env['DATABASE_URL']
const pool = new pg.Pool({ connectionString })
console.log(JSON.stringify(await run(pool, connectionString)))
await pool.end()
`

/** What each program prints. */
export const EXPECTED = { paid: 10, refused: 5, withCoupon: 1, balance: 50 }

/** Where the packed package is installed, and nothing else. */
export interface EmptyProject extends AsyncDisposable {
  readonly directory: string
  /** What npm has put into node_modules. */
  readonly installed: readonly string[]
}

export async function emptyProject(tarballPath: string): Promise<EmptyProject> {
  const directory = await mkdtemp(join(tmpdir(), 'lockstep-orm-'))
  const { faults } = await installConsumer(directory, tarballPath)
  if (faults.length > 0) throw new Error(faults.join('\n'))
  const installed = (await readdir(join(directory, 'node_modules'))).filter((name) => !name.startsWith('.'))
  return { directory, installed, [Symbol.asyncDispose]: () => rm(directory, { recursive: true, force: true }) }
}

/** `linked`: the ORM is the one of the repository. `installed`: npm installs it from the registry. */
export type Origin = 'linked' | 'installed'

/**
 * Runs the program of a guide in a project that has the packed package, one ORM and its driver, and gives what it printed. The program
 * is all that is taken from the repository.
 */
export async function tryOrm(name: string, empty: EmptyProject, origin: Origin, databaseUrl: string): Promise<unknown> {
  const project = await mkdtemp(join(tmpdir(), `lockstep-${name}-`))
  try {
    await cp(empty.directory, project, { recursive: true })
    await addPackages(project, PACKAGES[name] ?? [], origin)
    await addProgram(project, name)
    const loader = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href
    const env = { ...process.env, DATABASE_URL: databaseUrl }
    const { stdout } = succeeded(
      await command(process.execPath, ['--import', loader, 'main.ts'], { cwd: project, env }),
    )
    return JSON.parse(stdout)
  } finally {
    await rm(project, { recursive: true, force: true })
  }
}

async function addPackages(project: string, names: readonly string[], origin: Origin): Promise<void> {
  const versions = pinnedVersions(folder)
  if (origin === 'installed') {
    const wanted = names.map((name) => `${name}@${versions[name]}`)
    succeeded(await command('npm', ['install', '--no-audit', '--no-fund', ...wanted], { cwd: project }))
    return
  }
  for (const name of names) {
    const place = join(project, 'node_modules', name)
    await mkdir(dirname(place), { recursive: true })
    await symlink(join(folder, 'node_modules', name), place)
  }
}

async function addProgram(project: string, name: string): Promise<void> {
  await cp(join(examples, `${name}.ts`), join(project, `${name}.ts`))
  await writeFile(join(project, 'main.ts'), MAIN(name))
  if (name !== 'prisma') return
  // Its imports are resolved from where it is.
  await cp(join(folder, 'prisma', 'generated'), join(project, 'generated'), { recursive: true })
  await writeFile(join(project, 'prisma-client.ts'), `export { Prisma, PrismaClient } from './generated/client.ts'\n`)
}

function succeeded(finished: CommandResult): CommandResult {
  if (finished.code !== 0) throw new Error(finished.output)
  return finished
}

/** Checks the programs of all guides against the types of the packed package. */
export async function compilePrograms(empty: EmptyProject): Promise<string> {
  const project = await mkdtemp(join(tmpdir(), 'lockstep-orm-types-'))
  try {
    await cp(empty.directory, project, { recursive: true })
    await addPackages(project, [...new Set(Object.values(PACKAGES).flat()), '@types/pg'], 'linked')
    for (const name of Object.keys(PACKAGES)) await addProgram(project, name)
    await symlink(join(root, 'node_modules', '@types', 'node'), join(project, 'node_modules', '@types', 'node'))
    const { compilerOptions } = TSCONFIG
    await writeFile(
      join(project, 'tsconfig.json'),
      JSON.stringify({ compilerOptions, include: Object.keys(PACKAGES).map((each) => `${each}.ts`) }),
    )
    const { code, output } = await command(
      join(root, 'node_modules', '.bin', 'tsc'),
      ['-p', '.', '--pretty', 'false'],
      {
        cwd: project,
      },
    )
    return code === 0 ? '' : output
  } finally {
    await rm(project, { recursive: true, force: true })
  }
}

const TSCONFIG = {
  compilerOptions: {
    target: 'es2022',
    module: 'nodenext',
    types: ['node'],
    strict: true,
    exactOptionalPropertyTypes: true,
    // The types of the ORMs do not all compile under these options.
    skipLibCheck: true,
    allowImportingTsExtensions: true,
    noEmit: true,
  },
}
