import type { Check } from './check.ts'
import { root } from './repository.ts'
import { checkedOptions } from './tidy/checkedOptions.ts'
import { documentLinks } from './tidy/documentLinks.ts'
import { errorCodes } from './tidy/errorCodes.ts'
import { importDirection } from './tidy/importDirection.ts'
import { noDownloadAddresses } from './tidy/noDownloadAddresses.ts'
import { noMachinePaths } from './tidy/noMachinePaths.ts'
import { quietLibrary } from './tidy/quietLibrary.ts'
import { roomEssay } from './tidy/roomEssay.ts'
import { speakingNames } from './tidy/speakingNames.ts'
import { sqlApart } from './tidy/sqlApart.ts'
import type { Rule } from './tidy/tree.ts'
import { workingTree } from './tidy/workingTree.ts'

const rules: readonly Rule[] = [
  speakingNames,
  importDirection,
  roomEssay,
  sqlApart,
  quietLibrary,
  checkedOptions,
  errorCodes,
  documentLinks,
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
