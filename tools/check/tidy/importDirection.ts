import { posix } from 'node:path'
import { type Finding, isTest, type Rule, moduleOf, type Tree } from './tree.ts'
import { type Import, importsOf } from './scan.ts'

// postgres ← locks | events ← transactions ← rows | leases | rollout ← once | combine | outbox | inbox | http ← sinks
const layers: readonly (readonly string[])[] = [
  ['postgres'],
  ['locks', 'events'],
  ['transactions'],
  ['rows', 'leases', 'rollout'],
  ['once', 'combine', 'outbox', 'inbox', 'http'],
  ['sinks'],
]

// These stand above all others: they import src/index.ts, and of a module its index.ts.
const outerModules = new Set(['cli', 'console', 'nest'])
// What every module may use, observe and the guests too. These import each other and nothing else.
const openToAll = new Set(['src/errors.ts', 'src/checkOptions.ts', 'src/nearest.ts', 'src/packageVersion.ts'])
// What all errors have in common. The others get it from errors.ts.
const errorBase = 'src/lockstepError.ts'
// These live on what every user gets, which keeps the public entries sufficient.
const outerFolders = ['desk', 'console', 'proofs', 'bench', 'examples']

/** Imports go one way, from module to module only through the other's index.ts, and guests come in by the public entries. */
export const importDirection: Rule = {
  name: 'import-direction',
  find(tree) {
    const entries = publicEntries(tree)
    return tree.files
      .filter((file) => /\.(ts|tsx|mts|js|mjs)$/.test(file))
      .flatMap((file) => {
        const judge = judgeOf(file, entries)
        if (judge === undefined) return []
        return importsOf(tree.read(file)).flatMap((each): Finding[] => {
          const message = judge(each, target(file, each.specifier))
          return message === undefined ? [] : [{ file, line: each.line, message }]
        })
      })
  },
}

/** Says what is wrong with an import; a relative one comes with the path it names. */
type Judge = (each: Import, path: string | undefined) => string | undefined

function judgeOf(file: string, entries: Entries): Judge | undefined {
  if (outerFolders.some((folder) => file.startsWith(`${folder}/`))) {
    return (each, path) => judgeOuterFolder(each, path, entries.names)
  }
  if (!file.startsWith('src/') || isTest(file)) return undefined
  const module = moduleOf(file)
  return (each, path) => {
    if (/^pg-lockstep(\/|$)/.test(each.specifier)) return 'the library does not import itself by name'
    if (path === undefined) return undefined
    if (!path.startsWith('src/')) return path === 'package.json' ? undefined : `${path} is not part of the library`
    if (module !== undefined && moduleOf(path) === module) return undefined
    if (module === undefined) return judgeTop(file, path)
    if (outerModules.has(module)) return judgeOuterModule(module, path, entries.sources)
    if (module === 'observe') return judgeObserve(each, path)
    return judgeModule(module, path)
  }
}

function judgeOuterFolder(
  { specifier }: Import,
  path: string | undefined,
  names: ReadonlySet<string>,
): string | undefined {
  if (path !== undefined && /^(src|dist)\//.test(path))
    return `${specifier}: use 'pg-lockstep' or 'pg-lockstep/<entry>'`
  return specifier.startsWith('pg-lockstep/') && !names.has(specifier)
    ? `${specifier} is not a public entry`
    : undefined
}

function judgeOuterModule(module: string, path: string, entries: ReadonlySet<string>): string | undefined {
  if (path === 'src/index.ts' || isHelper(path) || /^src\/[^/]+\/index\.ts$/.test(path) || entries.has(path))
    return undefined
  return `${module} imports a module by its index.ts, and ${path} is none`
}

function judgeTop(file: string, path: string): string | undefined {
  if (file === 'src/errors.ts') {
    return path === errorBase ? undefined : `errors.ts is everybody’s and imports nothing but ${errorBase}`
  }
  if (openToAll.has(file) && !openToAll.has(path)) return `${file} is open to all, and ${path} is not`
  const module = moduleOf(path)
  if (module === undefined || path === `src/${module}/index.ts`) return undefined
  return `${path} belongs to ${module}: import its index.ts`
}

// The table of events names what errors name too; words are shared, code is not.
function judgeObserve({ typeOnly }: Import, path: string): string | undefined {
  if (isHelper(path)) return undefined
  return typeOnly && path === 'src/errors.ts' ? undefined : `observe depends on no module, and not on ${path}`
}

function judgeModule(module: string, path: string): string | undefined {
  const other = moduleOf(path)
  if (other === undefined) {
    return openToAll.has(path)
      ? undefined
      : `a module imports no top-level file that is not open to all, and not ${path}`
  }
  if (path !== `src/${other}/index.ts`) return `${path} belongs to ${other}: import its index.ts`
  // Every module reports what it does, so all may look at the table of events.
  if (other === 'observe') return undefined
  const layer = layerOf(module)
  const otherLayer = layerOf(other)
  if (layer === -1) return `the module ${module} has no layer yet: place it in tools/check/tidy/importDirection.ts`
  if (otherLayer === -1)
    return `${module} cannot import ${other}: it has no layer in tools/check/tidy/importDirection.ts`
  return otherLayer < layer ? undefined : `${module} stands on what is below it, and ${other} is not`
}

/** Open to all, and no error class: those the guests get from the public entries. */
function isHelper(path: string): boolean {
  return path !== 'src/errors.ts' && openToAll.has(path)
}

function layerOf(module: string): number {
  return layers.findIndex((modules) => modules.includes(module))
}

function target(file: string, specifier: string): string | undefined {
  return specifier.startsWith('.') ? posix.join(posix.dirname(file), specifier) : undefined
}

/** The exports map: what users import, and the sources behind it. A sink or an observer is exported by its product's name. */
interface Entries {
  readonly names: ReadonlySet<string>
  readonly sources: ReadonlySet<string>
}

function publicEntries(tree: Tree): Entries {
  const text = tree.files.includes('package.json') ? tree.read('package.json') : ''
  const found = [...text.matchAll(/"\.(\/[\w-]+)?":\s*"\.\/dist\/([^"]+)\.js"/g)]
  return {
    names: new Set(found.map(([, name = '']) => `pg-lockstep${name}`)),
    sources: new Set(found.map(([, , path]) => `src/${path}.ts`)),
  }
}
