import { InvalidOptionError } from '../errors.ts'
import { checkKey, checkLiterals } from '../locks/index.ts'

/** A key with columns of a table in it, as `Position:{symbol}:{exchange}`. */
export interface KeyTemplate {
  readonly text: string
  /** What is around the columns: one more than there are columns. */
  readonly literals: readonly string[]
  readonly columns: readonly string[]
}

const COLUMN = /\{([^{}]*)\}/

/** Reads a template by the rules of `key`: each column fills a whole segment between colons. Without a column it is one key for all rows. */
export function keyTemplate(text: unknown): KeyTemplate {
  if (typeof text !== 'string') {
    throw new InvalidOptionError(`\`key\` is ${text === undefined ? 'missing' : `a ${typeof text}`}.`, {
      advice: "Write a key with the columns in braces: 'Account:{id}'.",
    })
  }
  const pieces = text.split(COLUMN)
  const literals = pieces.filter((_, place) => place % 2 === 0)
  const columns = pieces.filter((_, place) => place % 2 === 1)
  const wrong = literals.find((each) => /[{}]/.test(each)) ?? columns.find((each) => each === '')
  if (wrong !== undefined) {
    throw new InvalidOptionError(`The key ${JSON.stringify(text)} has a brace without a column.`, {
      advice: "Write each column in braces: 'Account:{id}'.",
    })
  }
  checkLiterals(literals)
  checkKey(literals.join('1'))
  return { text, literals, columns }
}
