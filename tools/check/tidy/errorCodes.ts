import { type Finding, lineAt, type Rule } from './tree.ts'
import { scan } from './scan.ts'

const source = 'src/errors.ts'
const page = 'docs/reference/errors.md'

/** An error's code is its contract: every code is documented, and every documented code exists. */
export const errorCodes: Rule = {
  name: 'error-codes',
  find(tree) {
    if (!tree.files.includes(source)) return []
    const declared = new Map(
      scan(tree.read(source))
        .literals.filter(({ text }) => /^LOCKSTEP_[A-Z0-9_]+$/.test(text))
        .map(({ text, line }) => [text, line]),
    )
    if (!tree.files.includes(page)) {
      return declared.size === 0 ? [] : [{ file: source, message: `${declared.size} codes and no ${page}` }]
    }
    const text = tree.read(page)
    const documented = new Map(
      [...text.matchAll(/\bLOCKSTEP_[A-Z0-9_]+\b/g)].map((match) => [match[0], lineAt(text, match.index)]),
    )
    return [
      ...missing(declared, documented, (code, line): Finding => ({
        file: source,
        line,
        message: `${code} is not in ${page}`,
      })),
      ...missing(documented, declared, (code, line): Finding => ({
        file: page,
        line,
        message: `${code} is not in ${source}`,
      })),
    ]
  },
}

function missing(
  from: ReadonlyMap<string, number>,
  inside: ReadonlyMap<string, number>,
  finding: (code: string, line: number) => Finding,
): Finding[] {
  return [...from].filter(([code]) => !inside.has(code)).map(([code, line]) => finding(code, line))
}
