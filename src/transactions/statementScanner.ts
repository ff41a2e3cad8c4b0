/**
 * Splits a text into statements as the server's own lexer does, to find out which of them begin or end a
 * transaction. With `standard_conforming_strings` off the server reads backslashes in plain strings otherwise than this does: what
 * slips through is found before COMMIT.
 */

/** A statement's first words, in lower case. A string is `'`, a quoted name begins with `"`, everything else is one sign each. */
export type LeadingTokens = readonly string[]

/** No statement that matters has more words, and of the others the first says enough. */
const MAX_WORDS = 24

const SPACE = /[ \t\n\r\f\v]+/y
/** It takes `$` along: `a$b$` opens no dollar quote. */
const NAME = /[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]*/y
const TAG = /\$(?:[A-Za-z_\u0080-\uffff][\w\u0080-\uffff]*)?\$/y

/** Every statement of a text, empty ones left out. */
export function scanStatements(text: string): LeadingTokens[] {
  return new StatementScanner(text).scan()
}

class StatementScanner {
  readonly #text: string
  readonly #statements: string[][] = []
  #at = 0
  #words: string[] = []
  #parentheses = 0
  /** Open BEGIN ATOMIC and CASE of a function's body, in which semicolons end no statement. */
  #blocks = 0
  #previous = ''

  constructor(text: string) {
    this.#text = text
  }

  scan(): LeadingTokens[] {
    while (this.#at < this.#text.length) this.#next()
    this.#end()
    return this.#statements
  }

  #next(): void {
    const text = this.#text
    const start = this.#at
    const skipped = endOfBlank(text, start)
    if (skipped > start) {
      this.#at = skipped
      return
    }
    const first = text.charAt(start)
    const name = this.#match(NAME)
    if (first === `'` || (name?.toLowerCase() === 'e' && text.charAt(this.#at) === `'`)) {
      this.#at = name === undefined ? endOfQuote(text, start, first) : endOfEscaped(text, this.#at)
      this.#add(`'`)
    } else if (name !== undefined) {
      this.#addName(name.toLowerCase())
    } else if (first === '"') {
      this.#at = endOfQuote(text, start, first)
      this.#add(`"${text.slice(start + 1, this.#at - 1).replaceAll('""', '"')}`)
    } else {
      const tag = this.#match(TAG)
      this.#at = tag === undefined ? start + 1 : endOfDollarQuote(text, this.#at, tag)
      if (tag === undefined) this.#addSign(first)
      else this.#add(`'`)
    }
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at
    const found = pattern.exec(this.#text)?.[0]
    if (found !== undefined) this.#at += found.length
    return found
  }

  #addName(word: string): void {
    // Behind AS and a dot these are names of columns.
    const isKeyword = this.#previous !== 'as' && this.#previous !== '.'
    if (this.#blocks === 0) {
      if (word === 'atomic' && this.#previous === 'begin' && isCreateRoutine(this.#words)) this.#blocks = 1
    } else if (isKeyword && word === 'case') this.#blocks++
    else if (isKeyword && word === 'end') this.#blocks--
    this.#add(word)
  }

  #addSign(sign: string): void {
    if (sign === ';' && this.#parentheses === 0 && this.#blocks === 0) return this.#end()
    if (sign === '(') this.#parentheses++
    if (sign === ')') this.#parentheses--
    this.#add(sign)
  }

  #add(word: string): void {
    this.#previous = word
    if (this.#words.length < MAX_WORDS) this.#words.push(word)
  }

  #end(): void {
    if (this.#words.length > 0) this.#statements.push(this.#words)
    this.#words = []
    this.#previous = ''
    this.#parentheses = this.#blocks = 0
  }
}

function isCreateRoutine([create, or, replace, routine]: LeadingTokens): boolean {
  const word = or === 'or' && replace === 'replace' ? routine : or
  return create === 'create' && (word === 'function' || word === 'procedure')
}

/** The end of the blanks or the comment that begins there, or the same place. */
function endOfBlank(text: string, start: number): number {
  SPACE.lastIndex = start
  if (SPACE.test(text)) return SPACE.lastIndex
  if (text.startsWith('--', start)) return endOfLine(text, start)
  return text.startsWith('/*', start) ? endOfComment(text, start) : start
}

function endOfLine(text: string, start: number): number {
  const end = /[\n\r]/g
  end.lastIndex = start
  return end.test(text) ? end.lastIndex : text.length
}

/** Comments nest. One without an end takes the rest along: the server refuses such a text as a whole. */
function endOfComment(text: string, start: number): number {
  const border = /\/\*|\*\//g
  border.lastIndex = start
  let depth = 0
  for (let found = border.exec(text); found !== null; found = border.exec(text)) {
    depth += found[0] === '/*' ? 1 : -1
    if (depth === 0) return border.lastIndex
  }
  return text.length
}

/** Of a string or a quoted name; a quote inside of it is doubled. */
function endOfQuote(text: string, start: number, quote: string): number {
  for (let at = start + 1; ; at += 2) {
    at = text.indexOf(quote, at)
    if (at === -1) return text.length
    if (text.charAt(at + 1) !== quote) return at + 1
  }
}

/** Of a string in which a backslash takes the next character along. `start` is its opening quote. */
function endOfEscaped(text: string, start: number): number {
  const border = /\\[^]|''|'/g
  border.lastIndex = start + 1
  for (let found = border.exec(text); found !== null; found = border.exec(text)) {
    if (found[0] === `'`) return border.lastIndex
  }
  return text.length
}

function endOfDollarQuote(text: string, start: number, tag: string): number {
  const end = text.indexOf(tag, start)
  return end === -1 ? text.length : end + tag.length
}

const LEADING = /[ \t\n\r\f\v;]*([A-Za-z]*)/y

/** The first word of the first statement, in lower case; '' where it does not begin with one. */
export function firstWord(text: string): string {
  for (let at = 0; ;) {
    LEADING.lastIndex = at
    const word = LEADING.exec(text)?.[1] ?? ''
    if (word !== '') return word.toLowerCase()
    const start = LEADING.lastIndex
    at = endOfBlank(text, start)
    if (at === start) return ''
  }
}
