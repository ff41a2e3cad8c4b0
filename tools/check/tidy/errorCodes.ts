import { type Finding, lineAt, type Rule } from './tree.ts'

const source = 'src/errors.ts'
const page = 'docs/reference/errors.md'

/** An error's code is its contract: every code is documented, and every documented code exists. Hand-written: it compares two of our files. */
export const errorCodes: Rule = {
  name: 'error-codes',
  find(tree) {
    const codes = (file: string, pattern: RegExp): ReadonlyMap<string, Finding> => {
      const text = tree.files.includes(file) ? tree.read(file) : ''
      return new Map(
        [...text.matchAll(pattern)].map(({ 1: code = '', index }) => {
          const message = `${code} is not in ${file === source ? page : source}`
          return [code, { file, line: lineAt(text, index), message }]
        }),
      )
    }
    const declared = codes(source, /'(LOCKSTEP_[A-Z0-9_]+)'/g)
    const documented = codes(page, /\b(LOCKSTEP_[A-Z0-9_]+)\b/g)
    return [
      ...[...declared].filter(([code]) => !documented.has(code)),
      ...[...documented].filter(([code]) => !declared.has(code)),
    ].map(([, finding]) => finding)
  },
}
