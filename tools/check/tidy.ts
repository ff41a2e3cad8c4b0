import type { Check } from './check.ts'
import { root } from './repository.ts'
import { coreNamesNoPart } from './tidy/coreNamesNoPart.ts'
import { checkedOptions } from './tidy/checkedOptions.ts'
import { documentLinks } from './tidy/documentLinks.ts'
import { drawnGraph } from './tidy/drawnGraph.ts'
import { errorCodes } from './tidy/errorCodes.ts'
import { importCycles } from './tidy/importCycles.ts'
import { importDirection } from './tidy/importDirection.ts'
import { namedFiles } from './tidy/namedFiles.ts'
import { noDownloadAddresses } from './tidy/noDownloadAddresses.ts'
import { noMachinePaths } from './tidy/noMachinePaths.ts'
import { noConsoleOutput } from './tidy/noConsoleOutput.ts'
import { moduleEssay } from './tidy/moduleEssay.ts'
import { descriptiveNames } from './tidy/descriptiveNames.ts'
import { sqlInOwnFiles } from './tidy/sqlInOwnFiles.ts'
import type { Rule } from './tidy/tree.ts'
import { workingTree } from './tidy/workingTree.ts'

const rules: readonly Rule[] = [
  descriptiveNames,
  importDirection,
  importCycles,
  drawnGraph,
  moduleEssay,
  coreNamesNoPart,
  sqlInOwnFiles,
  noConsoleOutput,
  checkedOptions,
  errorCodes,
  documentLinks,
  namedFiles,
  noMachinePaths,
  noDownloadAddresses,
]

export const tidy: Check = {
  name: 'tidy',
  async run() {
    const tree = await workingTree(root)
    const faults = rules.flatMap((rule) =>
      rule.find(tree).map(({ file, line, message }) => {
        const place = line === undefined ? file : `${file}:${line}`
        return `${place}  ${message}  (${rule.name})`
      }),
    )
    return { faults, note: `${rules.length} rules over ${tree.files.length} files` }
  },
}
