import { cyclesOf, type Edge, fileEdges, moduleEdges } from '../../graph/importGraph.ts'
import type { Finding, Rule } from './tree.ts'

/**
 * No cycle between modules of src/, none between files. An `import type` counts like any other import: the compiler erases it, but it
 * joins the files into one unit of change.
 */
export const importCycles: Rule = {
  name: 'import-cycles',
  find(tree) {
    const files = fileEdges(tree)
    const modules = moduleEdges(files)
    return [
      ...cyclesOf(modules).map((cycle) => findingOf('modules', cycle, modules)),
      ...cyclesOf(files).map((cycle) => findingOf('files', cycle, files)),
    ]
  },
}

function findingOf(of: string, cycle: readonly string[], edges: readonly Edge[]): Finding {
  const first = edges.find(({ from, to }) => from === cycle[0] && to === cycle[1])
  const message = `a cycle of ${of}: ${cycle.join(' → ')}`
  return of === 'files' && first !== undefined
    ? { file: first.from, line: first.line, message }
    : { file: 'src', message }
}
