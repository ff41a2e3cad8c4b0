/**
 * A small scanner that tells TypeScript's strings, templates and comments from its code. The compiler has no JavaScript
 * API any more, and the rules need no syntax tree: they ask "what is in a string?" and "what is not?".
 */
export interface Literal {
  /** The text between the quotes, escapes as written; each `${…}` of a template is left as `${}`. */
  readonly text: string
  readonly line: number
  /** The code just before the opening quote, without comments and literals: `await client.query(`. */
  readonly before: string
}

export interface Scanned {
  /** The source with literals and comments blanked out; lines keep their numbers. */
  readonly code: string
  readonly literals: readonly Literal[]
  readonly comments: readonly Comment[]
}

export interface Comment {
  /** With its slashes and stars. */
  readonly text: string
  readonly line: number
}

// After one of these a slash begins a regular expression although a word stands before it.
const wordsBeforeExpression = /\b(return|typeof|case|in|of|do|else|void|delete|throw|new|await|yield|instanceof)$/

// Long enough for the names of a long import list.
const beforeLength = 1000

export function scan(source: string): Scanned {
  const literals: Literal[] = []
  const comments: Comment[] = []
  let code = ''
  let at = 0
  let line = 1

  function blank(until: number): void {
    for (; at < until && at < source.length; at += 1) {
      const newline = source[at] === '\n'
      if (newline) line += 1
      code += newline ? '\n' : ' '
    }
  }

  function keep(): void {
    if (source[at] === '\n') line += 1
    code += source[at]
    at += 1
  }

  function endOfQuoted(quote: string): number {
    let end = at + 1
    while (end < source.length && source[end] !== quote && source[end] !== '\n') end += source[end] === '\\' ? 2 : 1
    return end + 1
  }

  function endOfRegExp(): number {
    let end = at + 1
    let inClass = false
    for (; end < source.length && source[end] !== '\n'; end += 1) {
      const character = source[end]
      if (character === '\\') end += 1
      else if (character === '[') inClass = true
      else if (character === ']') inClass = false
      else if (character === '/' && !inClass) break
    }
    return end + 1
  }

  function beginsRegExp(): boolean {
    const before = code.slice(-beforeLength).trimEnd()
    return before === '' || !/[\w$)\]}]$/.test(before) || wordsBeforeExpression.test(before)
  }

  function comment(end: number): void {
    comments.push({ text: source.slice(at, end), line })
    blank(end)
  }

  function quoted(quote: string): void {
    const before = code.slice(-beforeLength).trimEnd()
    const startLine = line
    const end = endOfQuoted(quote)
    literals.push({ text: source.slice(at + 1, end - 1), line: startLine, before })
    blank(end)
  }

  function template(): void {
    const before = code.slice(-beforeLength).trimEnd()
    const startLine = line
    let text = ''
    blank(at + 1)
    while (at < source.length && source[at] !== '`') {
      if (source.startsWith('${', at)) {
        text += '${}'
        blank(at + 2)
        codeUntilBrace()
        blank(at + 1)
      } else {
        const length = source[at] === '\\' ? 2 : 1
        text += source.slice(at, at + length)
        blank(at + length)
      }
    }
    blank(at + 1)
    literals.push({ text, line: startLine, before })
  }

  /** Scans code up to the brace that closes it, or to the end of the file. */
  function codeUntilBrace(): void {
    let depth = 0
    while (at < source.length) {
      const character = source[at]
      if (character === '}' && depth === 0) return
      if (character === '{') depth += 1
      if (character === '}') depth -= 1
      step(character)
    }
  }

  function step(character: string | undefined): void {
    if (source.startsWith('//', at)) comment(endOr(source.indexOf('\n', at)))
    else if (source.startsWith('/*', at)) comment(endOr(source.indexOf('*/', at + 2), 2))
    else if (character === "'" || character === '"') quoted(character)
    else if (character === '`') template()
    else if (character === '/' && beginsRegExp()) blank(endOfRegExp())
    else keep()
  }

  function endOr(found: number, length = 0): number {
    return found === -1 ? source.length : found + length
  }

  while (at < source.length) {
    codeUntilBrace()
    // An unmatched brace is the compiler's business: step over it.
    if (at < source.length) keep()
  }
  return { code, literals, comments }
}

export interface Import {
  readonly specifier: string
  readonly line: number
  /** `import type …`: gone when the program runs. */
  readonly typeOnly: boolean
}

/** The module names a source imports or re-exports, types and dynamic imports included. */
export function importsOf(source: string): Import[] {
  return scan(source)
    .literals.filter(({ before }) => /(^|[^.\w$])(from|import|import\s*\(|require\s*\(|module)$/.test(before))
    .map(({ text, line, before }) => ({
      specifier: text,
      line,
      typeOnly: /\b(?:import|export)\s+type\s+(?:\{[^{}]*\}|\*\s+as\s+\w+|\w+)\s+from$/.test(before),
    }))
}
