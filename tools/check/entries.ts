import { posix } from 'node:path'

/**
 * Hand-written: publint and attw check whether entries resolve, not which modules are published.
 *
 * The modules that users import by name. What the others export is for their neighbors; what users need of it is exported by src/index.ts.
 */
const publishedModules: ReadonlySet<string> = new Set(['console', 'http', 'nest', 'observe', 'sinks', 'testing'])

// These modules hold one product a file, exported by the product's name: pg-lockstep/kafka, pg-lockstep/prometheus.
const modulesOfProducts: ReadonlySet<string> = new Set(['sinks', 'observe', 'orms'])

/** Compares the exports map with the sources, both ways. `has` answers whether a path exists, from the repository's root. */
export function entryFaults(exportsMap: Readonly<Record<string, unknown>>, has: (path: string) => boolean): string[] {
  const entries = Object.entries(exportsMap).filter(([name]) => name !== './package.json')
  const faults = entries.flatMap(([name, target]) => faultsOfEntry(name, target, has))
  for (const name of ['.', './package.json', ...[...publishedModules].map((module) => `./${module}`)]) {
    if (exportsMap[name] === undefined) faults.push(`exports has no "${name}"`)
  }
  return faults
}

function faultsOfEntry(name: string, target: unknown, has: (path: string) => boolean): string[] {
  if (typeof target !== 'string') return [`"${name}" is not a plain path: one format needs no conditions`]
  const module = /^\.\/dist\/(.+)\.js$/.exec(target)?.[1]
  if (module === undefined) return [`"${name}" leads to ${target}, not to ./dist/….js`]
  const faults = [`dist/${module}.js`, `dist/${module}.d.ts`, `src/${module}.ts`]
    .filter((path) => !has(path))
    .map((path) => `"${name}" needs ${path}, which is not there`)
  if (!isPublished(name, module)) {
    faults.push(`"${name}" leads to ${target}: an entry is a published module or a product, and has its name`)
  }
  return faults
}

function isPublished(name: string, module: string): boolean {
  if (name === '.') return module === 'index'
  const subpath = name.replace(/^\.\//, '')
  if (module === `${subpath}/index`) return publishedModules.has(subpath)
  const folder = posix.dirname(module)
  return modulesOfProducts.has(folder) && module === `${folder}/${subpath}`
}

/**
 * Compares the `paths` of a tsconfig with the exports map: programs of the repository import the entries that users have, and no others.
 * `from` is what stands for dist there, such as `./src/index.ts` for `./dist/index.js`.
 */
export function pathFaults(
  file: string,
  paths: Readonly<Record<string, readonly string[]>>,
  exportsMap: Readonly<Record<string, unknown>>,
  from: (target: string) => string,
): string[] {
  const wanted = new Map(
    Object.entries(exportsMap)
      .filter(([name]) => name !== './package.json')
      .map(([name, target]) => [name.replace('.', 'pg-lockstep'), from(String(target))]),
  )
  return [...new Set([...wanted.keys(), ...Object.keys(paths)])].flatMap((name) => {
    const found = paths[name]?.join(', ')
    const right = wanted.get(name)
    return found === right ? [] : [`${file}: the path of "${name}" is ${found ?? 'missing'}, not ${right ?? 'missing'}`]
  })
}
