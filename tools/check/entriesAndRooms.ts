import { posix } from 'node:path'

// The command line is a bin: nobody imports it.
const roomsWithoutEntry = new Set(['cli'])

// These rooms hold one product a file, exported by the product's name: pg-lockstep/kafka, pg-lockstep/prometheus.
const roomsOfProducts = new Set(['sinks', 'observe'])

/**
 * Compares the exports map with the sources, both ways. `has` answers whether a path exists, from the repository's root.
 * `rooms` are the folders of src/ that have an index.ts.
 */
export function entryFaults(
  exportsMap: Readonly<Record<string, unknown>>,
  rooms: readonly string[],
  has: (path: string) => boolean,
): string[] {
  const entries = Object.entries(exportsMap).filter(([name]) => name !== './package.json')
  const faults = entries.flatMap(([name, target]) => faultsOfEntry(name, target, has))
  if (exportsMap['.'] === undefined) faults.push('exports has no "."')
  if (exportsMap['./package.json'] === undefined) faults.push('exports has no "./package.json"')
  for (const room of rooms) {
    if (!roomsWithoutEntry.has(room) && exportsMap[`./${room}`] === undefined) {
      faults.push(`src/${room}/index.ts has no entry "./${room}"`)
    }
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
  if (!isNamedAfter(name, module))
    faults.push(`"${name}" leads to ${target}: an entry has its room's or its product's name`)
  return faults
}

function isNamedAfter(name: string, module: string): boolean {
  if (name === '.') return module === 'index'
  const subpath = name.replace(/^\.\//, '')
  if (module === `${subpath}/index`) return true
  const room = posix.dirname(module)
  return roomsOfProducts.has(room) && module === `${room}/${subpath}`
}
