import type { IForbiddenRuleType } from 'dependency-cruiser'
import { testFile } from '../tidy/tree.ts'

// postgres ← locks | events ← transactions ← rows | leases | rollout | guards | orms ← once | combine | outbox | inbox | http ← consumers ← sinks
const layers: readonly (readonly string[])[] = [
  ['postgres'],
  ['locks', 'events'],
  ['transactions'],
  ['rows', 'leases', 'rollout', 'guards', 'orms'],
  ['once', 'combine', 'outbox', 'inbox', 'http'],
  ['consumers'],
  ['sinks'],
]

// These stand above all others. Each imports entry points, the index.ts of modules, and the outer modules before it.
const outerModules: readonly string[] = ['testing', 'console', 'nest', 'cli']

// Files that every module can import. They import each other and nothing else.
const helpers = ['src/checkOptions.ts', 'src/nearest.ts', 'src/packageVersion.ts']
const openToAll = ['src/errors.ts', ...helpers]
// What all errors have in common. Other files get it from errors.ts.
const errorBase = 'src/lockstepError.ts'

/** Top-level files that import no module. The other top-level files wire the modules into the class `Lockstep`. */
export const sharedFiles: readonly string[] = [...openToAll, errorBase]

const test = `^src/.*${testFile.source}`

const exactly = (paths: readonly string[]): string[] => paths.map((path) => `^${path.replaceAll('.', String.raw`\.`)}$`)
const inside = (modules: readonly string[]): string => `^src/(${modules.join('|')})/`
const index = String.raw`^src/[^/]+/index\.ts$`
const topLevel = '^src/[^/]+$'

/** The rules of ARCHITECTURE.md, for dependency-cruiser. `exports` is the exports map of the package. */
export function importRules(exports: Readonly<Record<string, string>>): IForbiddenRuleType[] {
  const names = Object.keys(exports).map((name) => name.replace('.', 'pg-lockstep'))
  const entries = Object.values(exports).map((target) => target.replace(/^\.\/dist\/(.*)\.js$/, 'src/$1.ts'))
  const rules: IForbiddenRuleType[] = [
    {
      name: 'no cycle of files; `import type` counts',
      from: { path: '^src/', pathNot: test },
      to: { circular: true },
    },
    {
      name: 'the library does not import itself by name',
      from: { path: '^src/', pathNot: test },
      to: { path: '^pg-lockstep(/|$)' },
    },
    {
      name: 'the library imports no file outside of src/',
      from: { path: '^src/', pathNot: test },
      to: { dependencyTypes: ['local'], pathNot: ['^src/', ...exactly(['package.json'])] },
    },
    {
      name: 'a module is imported through its index.ts',
      from: { path: '^src/([^/]+)/', pathNot: [test, inside(outerModules)] },
      to: { path: '^src/[^/]+/', pathNot: ['^src/$1/', index] },
    },
    {
      name: 'top-level files import a module through its index.ts, and no outer module',
      from: { path: topLevel, pathNot: test },
      to: { path: ['^src/[^/]+/(?!index\\.ts$)', inside(outerModules)] },
    },
    {
      name: 'errors.ts imports only lockstepError.ts',
      from: { path: exactly(['src/errors.ts']) },
      to: { pathNot: exactly([errorBase]) },
    },
    {
      name: 'a file that is open to all imports only files that are open to all',
      from: { path: exactly([errorBase, ...helpers]) },
      to: { path: '^src/', pathNot: exactly(openToAll) },
    },
    {
      name: 'observe imports no module',
      from: { path: inside(['observe']), pathNot: test },
      to: { path: '^src/', pathNot: [inside(['observe']), ...exactly(openToAll)] },
    },
    {
      name: 'observe imports only types of errors.ts',
      from: { path: inside(['observe']), pathNot: test },
      to: { path: exactly(['src/errors.ts']), dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'a module has a layer in tools/check/imports/rules.ts',
      from: { path: '^src/[^/]+/', pathNot: [test, inside([...layers.flat(), 'observe', ...outerModules])] },
      to: { path: '^src/' },
    },
    {
      name: 'desk, console, proofs, bench and examples import pg-lockstep, not its files',
      from: { path: '^(desk|console|proofs|bench|examples)/' },
      to: { path: '^(src|dist)/' },
    },
    {
      name: 'desk, console, proofs, bench and examples use only public entry points',
      from: { path: '^(desk|console|proofs|bench|examples)/' },
      to: { path: '^pg-lockstep/', pathNot: exactly(names) },
    },
  ]
  // Layers also make a cycle of modules impossible: below a module stand only modules that cannot import it.
  for (const [level, modules] of layers.entries()) {
    const below = [...layers.slice(0, level).flat(), 'observe']
    rules.push({
      name: `${modules.join(', ')} import only the modules below: ${below.join(', ')}`,
      from: { path: `^src/(${modules.join('|')})/`, pathNot: test },
      to: { path: '^src/', pathNot: ['^src/$1/', inside(below), ...exactly(openToAll)] },
    })
  }
  for (const [place, module] of outerModules.entries()) {
    rules.push({
      name: `${module} imports entry points, the index.ts of modules, and no outer module after it`,
      from: { path: inside([module]), pathNot: test },
      to: {
        path: [`^src/(?!${module}/|[^/]+/index\\.ts$)`, ...outerModules.slice(place + 1).map((each) => inside([each]))],
        pathNot: exactly([...helpers, ...entries]),
      },
    })
  }
  return rules
}
