import type { ICruiseResult } from 'dependency-cruiser'
import { sharedFiles } from '../check/imports/rules.ts'
import { isLibrarySource } from '../check/tidy/tree.ts'

/** The page that holds the drawing. */
export const PAGE = 'ARCHITECTURE.md'

const BEGIN = '<!-- import graph: begin, drawn by `npm run graph` -->'
const END = '<!-- import graph: end -->'

/** The files that wire the modules into the class `Lockstep`, and those that every module can import. They have no folder of their own. */
const LABELS: Readonly<Record<string, string>> = {
  lockstep: 'lockstep.ts, index.ts',
  shared: 'errors.ts, checkOptions.ts',
}

/**
 * The page with the drawing of today's imports between its marks. Undefined where the marks are missing. Drawn here because the reporters
 * of dependency-cruiser draw every import, and this page leaves out arrows that follow from others.
 */
export function drawnInto(page: string, cruised: ICruiseResult): string | undefined {
  const begin = page.indexOf(BEGIN)
  const end = page.indexOf(END)
  if (begin === -1 || end < begin) return undefined
  return `${page.slice(0, begin)}${BEGIN}\n\n${drawing(moduleImports(cruised))}\n${page.slice(end)}`
}

/** For each module, the modules that it imports, and whether it imports only types of them. */
type ModuleImports = ReadonlyMap<string, ReadonlyMap<string, { readonly typeOnly: boolean }>>

function moduleImports({ modules }: ICruiseResult): ModuleImports {
  const imports = new Map<string, Map<string, { typeOnly: boolean }>>()
  for (const { source, dependencies } of modules.filter((module) => isLibrarySource(module.source))) {
    for (const { resolved, dependencyTypes } of dependencies) {
      const [from, to] = [moduleOf(source), moduleOf(resolved)]
      if (from === to || !isLibrarySource(resolved)) continue
      const targets = imports.get(from) ?? new Map<string, { typeOnly: boolean }>()
      const typeOnly = dependencyTypes.includes('type-only') && (targets.get(to)?.typeOnly ?? true)
      imports.set(from, targets.set(to, { typeOnly }))
    }
  }
  return imports
}

function moduleOf(path: string): string {
  return /^src\/([^/]+)\//.exec(path)?.[1] ?? (sharedFiles.includes(path) ? 'shared' : 'lockstep')
}

/** A Mermaid flowchart. It sets no colors, so that GitHub draws it for its light and its dark theme. */
function drawing(imports: ModuleImports): string {
  const nodes = new Set([...imports].flatMap(([from, targets]) => [from, ...targets.keys()]))
  const arrows = [...imports].flatMap(([from, targets]) =>
    [...targets]
      .filter(([to]) => ![...targets.keys()].some((other) => reaches(imports, other, to)))
      .map(([to, { typeOnly }]) => `  ${from} ${typeOnly ? '-.->' : '-->'} ${to}`),
  )
  const boxes = [...nodes].map((node) => `  ${node}["${LABELS[node] ?? node}"]`)
  const lines = [...boxes.toSorted(), ...arrows.toSorted(byEnds)]
  return `\`\`\`mermaid\nflowchart TD\n${lines.join('\n')}\n\`\`\`\n`
}

function byEnds(a: string, b: string): number {
  const ends = (arrow: string): string => arrow.replace(/ -\S+ /, ' ')
  return ends(a) < ends(b) ? -1 : 1
}

/** Whether a module imports another one, directly or not. */
function reaches(imports: ModuleImports, from: string, to: string, seen = new Set<string>()): boolean {
  if (seen.has(from)) return false
  seen.add(from)
  const targets = [...(imports.get(from)?.keys() ?? [])]
  return targets.includes(to) || targets.some((each) => reaches(imports, each, to, seen))
}
