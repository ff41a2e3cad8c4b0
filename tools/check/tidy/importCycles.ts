import { cyclesOf, type Edge, fileEdges, moduleEdges } from '../../graph/importGraph.ts'
import { type Finding, type Rule, moduleOf } from './tree.ts'

// Files of these modules can name each other's types in a circle. The compiler erases such imports, so they have no effect at run
// time, but they join the files into one unit of change. Do not add to this list.
const modulesWithTypeCycles = new Set(['transactions'])

/**
 * No cycle between modules of src/, none between files. Between modules an `import type` counts like any other import. Between the
 * files of one module it counts, too, except in the modules above.
 */
export const importCycles: Rule = {
  name: 'import-cycles',
  find(tree) {
    const files = fileEdges(tree)
    const counted = files.filter(({ from, typeOnly }) => !typeOnly || !modulesWithTypeCycles.has(moduleOf(from) ?? ''))
    const modules = moduleEdges(files)
    return [
      ...cyclesOf(modules).map((cycle) => findingOf('modules', cycle, modules)),
      ...cyclesOf(counted).map((cycle) => findingOf('files', cycle, counted)),
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
