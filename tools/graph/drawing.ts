import type { Tree } from '../check/tidy/tree.ts'
import { type Edge, fileEdges, moduleEdges, SHARED, withoutImplied, WIRING } from './importGraph.ts'

/** The page that holds the drawing. */
export const PAGE = 'ARCHITECTURE.md'

const BEGIN = '<!-- import graph: begin, drawn by `npm run graph` -->'
const END = '<!-- import graph: end -->'

const LABELS: Readonly<Record<string, string>> = {
  [WIRING]: 'lockstep.ts, index.ts',
  [SHARED]: 'errors.ts, checkOptions.ts',
}

/** The page with the drawing of today's imports between its marks. Undefined where the marks are missing. */
export function drawnInto(page: string, tree: Tree): string | undefined {
  const begin = page.indexOf(BEGIN)
  const end = page.indexOf(END)
  if (begin === -1 || end < begin) return undefined
  return `${page.slice(0, begin)}${BEGIN}\n\n${drawingOf(moduleEdges(fileEdges(tree)))}\n${page.slice(end)}`
}

/** A Mermaid flowchart. It sets no colors, so that GitHub draws it for its light and its dark theme. */
export function drawingOf(edges: readonly Edge[]): string {
  const nodes = [...new Set(edges.flatMap(({ from, to }) => [from, to]))].toSorted()
  const lines = [
    ...nodes.map((node) => `  ${node}["${LABELS[node] ?? node}"]`),
    ...withoutImplied(edges).map(({ from, to, typeOnly }) => `  ${from} ${typeOnly ? '-.->' : '-->'} ${to}`),
  ]
  return `\`\`\`mermaid\nflowchart TD\n${lines.join('\n')}\n\`\`\`\n`
}
