import { existsSync } from 'node:fs'
import { cp, mkdir, readdir, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { type Fault, faultsOf } from './check.ts'
import { command } from './command.ts'
import { root, tool } from './repository.ts'
import type { Manifest } from './tarball.ts'

const templates = join(root, 'tools', 'check', 'consumer')

// What a user's project has besides us. Linked from our own node_modules, so that the check needs no network.
const compiler = ['@typescript/native', '@types/node']
const drivers = ['pg', '@types/pg', 'postgres']
// The entries that import a framework, and what their users have installed.
const packagesOfEntries: Readonly<Record<string, readonly string[]>> = {
  './nest': ['@nestjs/common', '@nestjs/core', 'reflect-metadata', 'rxjs'],
}

export interface Installed {
  readonly packageDirectory: string
  readonly faults: readonly Fault[]
}

export async function installConsumer(directory: string, tarballPath: string): Promise<Installed> {
  await writeFile(join(directory, 'package.json'), '{"name":"consumer","private":true,"type":"module"}\n')
  // --offline proves the point of having no dependencies: the tarball is all there is to fetch.
  const args = ['install', '--offline', '--no-audit', '--no-fund', '--no-package-lock', tarballPath]
  const install = await command('npm', args, { cwd: directory })
  return {
    packageDirectory: join(directory, 'node_modules', 'pg-lockstep'),
    faults: faultsOf(install, 'npm install --offline of the tarball'),
  }
}

/** Links packages of the repository into a project. */
export async function linkOurs(directory: string, names: readonly string[]): Promise<void> {
  for (const name of names) {
    const link = join(directory, 'node_modules', name)
    if (existsSync(link)) continue
    await mkdir(dirname(link), { recursive: true })
    await symlink(join(root, 'node_modules', name), link)
  }
}

export interface Tried {
  readonly faults: readonly Fault[]
  /** What was really done, since a Node may lack require(esm). */
  readonly done: readonly string[]
}

export async function tryConsumer(directory: string, installed: Manifest): Promise<Tried> {
  const faults: Fault[] = []
  const done: string[] = []
  const attempt = async (title: string, program: string, args: readonly string[]): Promise<string> => {
    const result = await command(program, args, { cwd: directory })
    faults.push(...faultsOf(result, title))
    done.push(title)
    return result.stdout
  }

  const [ofOrms, others] = splitEntries(installed)
  const alone = others.filter((name) => packagesOfEntries[name] === undefined)
  await writeFile(join(directory, 'everyEntry.ts'), importEverything(installed, alone))
  await linkOurs(directory, compiler)
  const compile = async (title: string, resolution: Resolution, changes: Changes = {}): Promise<void> => {
    const config = `tsconfig.${resolution}.json`
    await writeFile(join(directory, config), JSON.stringify(tsconfig(resolution, changes)))
    await attempt(title, tool('tsc'), ['-p', config, '--pretty', 'false'])
  }
  // Who uses one driver does not have the other's types, so ours may lean on neither.
  await compile('types without a driver', 'nodenext')
  await attempt('every entry', process.execPath, [join('out', 'everyEntry.js')])
  await linkOurs(directory, [...drivers, ...new Set(Object.values(packagesOfEntries).flat())])
  const withFrameworks = importEverything(installed, Object.keys(packagesOfEntries))
  await writeFile(join(directory, 'entriesOfFrameworks.ts'), withFrameworks)
  await cp(templates, directory, { recursive: true })
  await compile('types under nodenext', 'nodenext')
  await compile('types under bundler', 'bundler')
  await attempt('entries of frameworks', process.execPath, [join('out', 'entriesOfFrameworks.js')])
  for (const script of (await readdir(templates)).filter((name) => name.endsWith('.ts'))) {
    await attempt(script, process.execPath, [join('out', script.replace(/\.ts$/, '.js'))])
  }
  await linkOurs(directory, Object.keys(installed.peerDependencies))
  await mkdir(join(directory, 'orms'))
  await writeFile(join(directory, 'orms', 'everyOrm.ts'), importEverything(installed, ofOrms))
  // The declarations of some ORMs do not hold without it, and their users know.
  await compile('types with the ORMs', 'nodenext', { skipLibCheck: true, include: ['orms/*.ts'] })
  await attempt('every ORM', process.execPath, [join('out', 'orms', 'everyOrm.js')])
  if (canRequireModules()) await attempt('require()', process.execPath, ['--eval', requireScript])
  for (const bin of Object.keys(installed.bin)) {
    const help = await attempt(`${bin} --help`, join(directory, 'node_modules', '.bin', bin), ['--help'])
    if (!/lockstep/i.test(help))
      faults.push(`${bin} --help says nothing of itself: ${JSON.stringify(help.slice(0, 200))}`)
  }
  return { faults, done }
}

type Resolution = 'nodenext' | 'bundler'

interface Changes {
  readonly skipLibCheck?: boolean
  readonly include?: readonly string[]
}

function tsconfig(resolution: Resolution, { skipLibCheck = false, include = ['*.ts'] }: Changes): object {
  return {
    compilerOptions: {
      target: 'es2022',
      lib: ['es2023', 'esnext.disposable'],
      module: resolution === 'nodenext' ? 'nodenext' : 'preserve',
      moduleResolution: resolution,
      types: ['node'],
      strict: true,
      // Most projects have it off.
      exactOptionalPropertyTypes: resolution === 'nodenext',
      noUncheckedIndexedAccess: true,
      // Our declarations must hold by themselves: a user without skipLibCheck sees each of their faults.
      skipLibCheck,
      rootDir: '.',
      outDir: 'out',
      noEmit: resolution === 'bundler',
    },
    include,
  }
}

/** The entries of ORMs, which need their ORM, and those that anyone can import. */
function splitEntries({ exports }: Manifest): [ofOrms: string[], others: string[]] {
  const names = Object.keys(exports).filter((name) => name !== './package.json')
  const isOrm = (name: string): boolean => exports[name]?.startsWith('./dist/orms/') === true
  return [names.filter(isOrm), names.filter((name) => !isOrm(name))]
}

function importEverything(installed: Manifest, names: readonly string[]): string {
  const imports = names.map((name, index) => `import * as entry${index} from '${name.replace('.', installed.name)}'`)
  const counts = names.map((name, index) => `  ['${name}', Object.keys(entry${index}).length],`)
  return `${imports.join('\n')}
const sizes: [string, number][] = [
${counts.join('\n')}
]
const empty = sizes.filter(([, size]) => size === 0).map(([name]) => name)
if (empty.length > 0) throw new Error(\`nothing is exported from \${empty.join(', ')}\`)
`
}

const requireScript = `
const { Lockstep, key } = require('pg-lockstep')
if (typeof Lockstep !== 'function' || typeof key !== 'function') throw new Error('require() gave no Lockstep or no key')
`

function canRequireModules(): boolean {
  const features: { readonly require_module?: unknown } = process.features
  return Boolean(features.require_module)
}
