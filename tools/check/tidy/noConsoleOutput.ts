import { isLibrarySource, lineAt, type Rule, moduleOf } from './tree.ts'
import { scan } from './scan.ts'

const output = /\bconsole\s*\??\.\s*\w+|\bprocess\s*\.\s*(?:stdout|stderr)\b/g

/** A library does not write to its host's terminal: it emits events. Only the command line speaks. */
export const noConsoleOutput: Rule = {
  name: 'no-console-output',
  find(tree) {
    return tree.files
      .filter((file) => isLibrarySource(file) && moduleOf(file) !== 'cli')
      .flatMap((file) => {
        const { code } = scan(tree.read(file))
        return [...code.matchAll(output)].map((match) => ({
          file,
          line: lineAt(code, match.index),
          message: `${match[0]} in the library: emit an event instead`,
        }))
      })
  },
}
