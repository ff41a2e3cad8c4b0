import { isLibrarySource, lineAt, moduleOf, type Rule } from './tree.ts'

const parts = /\w*(?:stream|shadow|retention|rollout|outbox|enqueu)\w*|observed?[ -]?keys?/gi

/**
 * The core of transactions names none of its optional features, neither in code nor in a comment. A feature is a part, in a module of its
 * own, and one line in src/parts.ts registers it.
 */
export const coreNamesNoPart: Rule = {
  name: 'core-names-no-part',
  find(tree) {
    return tree.files
      .filter((file) => isLibrarySource(file) && moduleOf(file) === 'transactions')
      .flatMap((file) => {
        const text = tree.read(file)
        const found = [...text.matchAll(parts)].map((match) => ({ name: match[0], line: lineAt(text, match.index) }))
        const named = [...file.matchAll(parts)].map((match) => ({ name: match[0], line: 1 }))
        return [...named, ...found].map(({ name, line }) => ({
          file,
          line,
          message: `${name} is an optional feature: make it a part (src/transactions/part.ts), in a module above transactions`,
        }))
      })
  },
}
