import type { Check } from './check.ts'
import { root } from './repository.ts'
import { checkedOptions } from './tidy/checkedOptions.ts'
import { documentLinks } from './tidy/documentLinks.ts'
import { errorCodes } from './tidy/errorCodes.ts'
import { namedFiles } from './tidy/namedFiles.ts'
import { plainWords } from './tidy/plainWords.ts'
import { forbiddenTexts } from './tidy/forbiddenText.ts'
import { moduleEssay } from './tidy/moduleEssay.ts'
import { sqlInOwnFiles } from './tidy/sqlInOwnFiles.ts'
import type { Rule } from './tidy/tree.ts'
import { workingTree } from './tidy/workingTree.ts'

const rules: readonly Rule[] = [
  ...forbiddenTexts,
  moduleEssay,
  sqlInOwnFiles,
  checkedOptions,
  errorCodes,
  documentLinks,
  namedFiles,
  plainWords,
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
