import { posix } from 'node:path'
import { importsOf } from '../check/tidy/scan.ts'
import { isLibrarySource, moduleOf, type Tree } from '../check/tidy/tree.ts'

/** One import of a file of src/ by another. */
export interface Edge {
  readonly from: string
  readonly to: string
  readonly line: number
  /** `import type` and `export type`: the compiler erases it. */
  readonly typeOnly: boolean
}

/** The files that wire the modules into the class `Lockstep`. They have no folder of their own. */
export const WIRING = 'lockstep'
/** Top-level files that import no module, such as the error classes. Every module can import them. */
export const SHARED = 'shared'

/** Every import between two files of the library, tests left out. */
export function fileEdges(tree: Tree): Edge[] {
  const sources = new Set(tree.files.filter(isLibrarySource))
  return [...sources].flatMap((from) =>
    importsOf(tree.read(from)).flatMap(({ specifier, line, typeOnly }) => {
      const to = posix.join(posix.dirname(from), specifier)
      return specifier.startsWith('.') && sources.has(to) ? [{ from, to, line, typeOnly }] : []
    }),
  )
}

/** The imports between modules, one edge for each pair. It is type-only where all imports of the pair are. */
export function moduleEdges(edges: readonly Edge[]): Edge[] {
  const wiring = wiringFiles(edges)
  const nodeOf = (file: string): string => moduleOf(file) ?? (wiring.has(file) ? WIRING : SHARED)
  const pairs = new Map<string, Edge>()
  for (const edge of edges) {
    const from = nodeOf(edge.from)
    const to = nodeOf(edge.to)
    if (from === to) continue
    const known = pairs.get(`${from} ${to}`)
    pairs.set(`${from} ${to}`, { ...edge, from, to, typeOnly: edge.typeOnly && (known?.typeOnly ?? true) })
  }
  return [...pairs.values()].toSorted((a, b) => a.from.localeCompare(b.from) || a.to.localeCompare(b.to))
}

/** Top-level files that reach a module, directly or through each other. */
function wiringFiles(edges: readonly Edge[]): ReadonlySet<string> {
  const wiring = new Set<string>()
  for (let before = -1; before < wiring.size;) {
    before = wiring.size
    for (const { from, to } of edges) {
      if (moduleOf(from) === undefined && (moduleOf(to) !== undefined || wiring.has(to))) wiring.add(from)
    }
  }
  return wiring
}

/** A shortest cycle through each group of nodes that reach each other. */
export function cyclesOf(edges: readonly Edge[]): string[][] {
  const targets = targetsOf(edges)
  const seen = new Set<string>()
  const cycles: string[][] = []
  for (const node of [...targets.keys()].toSorted()) {
    if (seen.has(node)) continue
    const cycle = shortestPath(targets, node, node)
    if (cycle === undefined) continue
    cycles.push(cycle)
    const reached = reachableFrom(targets, node)
    for (const other of reached) if (reachableFrom(targets, other).has(node)) seen.add(other)
  }
  return cycles
}

/** The edges that do not follow from others: where a reaches c through b, the edge from a to c says nothing new. */
export function withoutImplied(edges: readonly Edge[]): Edge[] {
  const targets = targetsOf(edges)
  return edges.filter(({ from, to }) => {
    const others = [...(targets.get(from) ?? [])].filter((each) => each !== to && each !== from)
    return !others.some((each) => reachableFrom(targets, each).has(to))
  })
}

type Targets = ReadonlyMap<string, ReadonlySet<string>>

function targetsOf(edges: readonly Edge[]): Targets {
  const targets = new Map<string, Set<string>>()
  for (const { from, to } of edges) targets.set(from, (targets.get(from) ?? new Set()).add(to))
  return targets
}

/** What a node imports, directly or not. It is among them itself only where it is in a cycle. */
function reachableFrom(targets: Targets, node: string): Set<string> {
  const reached = new Set<string>()
  const queue = [node]
  for (let at = queue.pop(); at !== undefined; at = queue.pop()) {
    for (const next of targets.get(at) ?? []) {
      if (reached.has(next)) continue
      reached.add(next)
      queue.push(next)
    }
  }
  return reached
}

function shortestPath(targets: Targets, start: string, end: string): string[] | undefined {
  const cameFrom = new Map<string, string>()
  let ring = [start]
  while (ring.length > 0) {
    const next: string[] = []
    for (const at of ring) {
      for (const to of targets.get(at) ?? []) {
        if (to === end) return [...pathTo(cameFrom, start, at), end]
        if (cameFrom.has(to) || to === start) continue
        cameFrom.set(to, at)
        next.push(to)
      }
    }
    ring = next
  }
  return undefined
}

function pathTo(cameFrom: ReadonlyMap<string, string>, start: string, node: string): string[] {
  const path = [node]
  for (let at = node; at !== start; path.unshift(at)) at = cameFrom.get(at) ?? start
  return path
}
