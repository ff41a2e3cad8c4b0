import { posix } from 'node:path'
import { type Finding, isTest, type Rule, roomOf, type Tree } from './tree.ts'
import { type Import, importsOf } from './scan.ts'

// postgres ← locks ← transactions ← rows | leases ← once | combine | outbox | inbox | http ← sinks
const floors: readonly (readonly string[])[] = [
  ['postgres'],
  ['locks'],
  ['transactions'],
  ['rows', 'leases'],
  ['once', 'combine', 'outbox', 'inbox', 'http'],
  ['sinks'],
]

// These stand above all others: they import src/index.ts, and of a module its index.ts.
const guestRooms = new Set(['cli', 'console'])
// What every room may use, observe and the guests too. These import each other and nothing else.
const openToAll = new Set(['src/errors.ts', 'src/checkOptions.ts', 'src/nearest.ts', 'src/packageVersion.ts'])
// What all errors have in common. The others get it from errors.ts.
const errorBase = 'src/lockstepError.ts'
// These live on what every user gets, which keeps the public entries sufficient.
const guestFolders = ['desk', 'console', 'proofs', 'bench', 'examples']

/** Imports go one way, from room to room only through the other's index.ts, and guests come in by the public entries. */
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
  if (guestFolders.some((folder) => file.startsWith(`${folder}/`))) {
    return (each, path) => judgeGuestFolder(each, path, entries.names)
  }
  if (!file.startsWith('src/') || isTest(file)) return undefined
  const room = roomOf(file)
  return (each, path) => {
    if (/^pg-lockstep(\/|$)/.test(each.specifier)) return 'the library does not import itself by name'
    if (path === undefined) return undefined
    if (!path.startsWith('src/')) return path === 'package.json' ? undefined : `${path} is not part of the library`
    if (room !== undefined && roomOf(path) === room) return undefined
    if (room === undefined) return judgeTop(file, path)
    if (guestRooms.has(room)) return judgeGuestRoom(room, path, entries.sources)
    if (room === 'observe') return judgeObserve(each, path)
    return judgeRoom(room, path)
  }
}

function judgeGuestFolder(
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

function judgeGuestRoom(room: string, path: string, entries: ReadonlySet<string>): string | undefined {
  if (path === 'src/index.ts' || isHelper(path) || /^src\/[^/]+\/index\.ts$/.test(path) || entries.has(path))
    return undefined
  return `${room} imports a module by its index.ts, and ${path} is none`
}

function judgeTop(file: string, path: string): string | undefined {
  if (file === 'src/errors.ts') {
    return path === errorBase ? undefined : `errors.ts is everybody’s and imports nothing but ${errorBase}`
  }
  if (openToAll.has(file) && !openToAll.has(path)) return `${file} is open to all, and ${path} is not`
  const room = roomOf(path)
  if (room === undefined || path === `src/${room}/index.ts`) return undefined
  return `${path} belongs to ${room}: import its index.ts`
}

// The table of events names what errors name too; words are shared, code is not.
function judgeObserve({ typeOnly }: Import, path: string): string | undefined {
  if (isHelper(path)) return undefined
  return typeOnly && path === 'src/errors.ts' ? undefined : `observe depends on no room, and not on ${path}`
}

function judgeRoom(room: string, path: string): string | undefined {
  const other = roomOf(path)
  if (other === undefined) {
    return openToAll.has(path) ? undefined : `a room imports no top-level file that is not open to all, and not ${path}`
  }
  if (path !== `src/${other}/index.ts`) return `${path} belongs to ${other}: import its index.ts`
  // Every room reports what it does, so all may look at the table of events.
  if (other === 'observe') return undefined
  const floor = floorOf(room)
  const otherFloor = floorOf(other)
  if (floor === -1) return `the room ${room} has no floor yet: place it in tools/check/tidy/importDirection.ts`
  if (otherFloor === -1) return `${room} cannot import ${other}: it has no floor in tools/check/tidy/importDirection.ts`
  return otherFloor < floor ? undefined : `${room} stands on what is below it, and ${other} is not`
}

/** Open to all, and no error class: those the guests get from the public entries. */
function isHelper(path: string): boolean {
  return path !== 'src/errors.ts' && openToAll.has(path)
}

function floorOf(room: string): number {
  return floors.findIndex((rooms) => rooms.includes(room))
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
