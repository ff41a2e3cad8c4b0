import { isLibrarySource, lineAt, type Rule, moduleOf } from './tree.ts'

const declared = /^export (?:interface|type) (\w*Options)\b/gm

// Options that we pass to others: their shape is the other library's.
const ofOthers = new Set(['InstrumentOptions', 'RabbitMessageOptions'])

/** A misspelled option would be ignored: every options type has the list of its names beside it, for `checkOptions()`. Hand-written: the rule is of this library. */
export const checkedOptions: Rule = {
  name: 'checked-options',
  find(tree) {
    return tree.files
      .filter((file) => isLibrarySource(file) && moduleOf(file) !== 'cli')
      .flatMap((file) => {
        const code = tree.read(file)
        return [...code.matchAll(declared)]
          .map((match) => ({ name: match[1] ?? '', line: lineAt(code, match.index) }))
          .filter(({ name }) => !ofOthers.has(name) && !new RegExp(`: OptionNames<${name}\\b`).test(code))
          .map(({ name, line }) => ({
            file,
            line,
            message: `${name} has no list of its names: add one of type OptionNames<${name}>, and call checkOptions()`,
          }))
      })
  },
}
