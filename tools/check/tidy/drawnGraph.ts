import { drawnInto, PAGE } from '../../graph/drawing.ts'
import type { Rule } from './tree.ts'

/** The import graph in ARCHITECTURE.md shows the imports as they are. */
export const drawnGraph: Rule = {
  name: 'drawn-graph',
  find(tree) {
    if (!tree.files.includes(PAGE)) return [{ file: PAGE, message: 'is missing' }]
    const page = tree.read(PAGE)
    const drawn = drawnInto(page, tree)
    if (drawn === undefined) return [{ file: PAGE, message: 'has no marks for the import graph' }]
    return drawn === page ? [] : [{ file: PAGE, message: 'shows an old import graph: run `npm run graph`' }]
  },
}
