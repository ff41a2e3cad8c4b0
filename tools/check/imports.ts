import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ICruiseResult } from 'dependency-cruiser'
import { drawnInto, PAGE } from '../graph/drawing.ts'
import type { Check, Fault } from './check.ts'
import { cruiseImports } from './imports/cruiseImports.ts'
import { root } from './repository.ts'

/** Imports follow the rules of ARCHITECTURE.md, and the graph on that page shows them as they are. */
export const imports: Check = {
  name: 'imports',
  async run() {
    const cruised = await cruiseImports(root)
    const faults = [...importFaults(cruised), ...graphFaults(readFileSync(join(root, PAGE), 'utf8'), cruised)]
    const { totalDependenciesCruised, totalCruised } = cruised.summary
    return { faults, note: `${totalDependenciesCruised} imports of ${totalCruised} files` }
  },
}

export function importFaults({ summary }: ICruiseResult): Fault[] {
  return summary.violations.map(({ from, to, cycle, rule }) => {
    const path = cycle === undefined ? [to] : cycle.map(({ name }) => name)
    return `${[from, ...path].join(' → ')}  ${rule.name}`
  })
}

export function graphFaults(page: string, cruised: ICruiseResult): Fault[] {
  const drawn = drawnInto(page, cruised)
  if (drawn === undefined) return [`${PAGE} has no marks for the import graph`]
  return drawn === page ? [] : [`${PAGE} shows an old import graph: run \`npm run graph\``]
}
