import { parseSync, Visitor } from 'vite'
import { lineAt } from './tree.ts'

export interface Passage {
  /** Without its quotes or its comment marks. Each `${…}` of a template is left as `${}`. */
  readonly text: string
  readonly line: number
  /** The end of the code before it: `await client.query(`. */
  readonly before: string
}

/** The strings and templates of a TypeScript file. */
export function literalsOf(file: string, source: string): Passage[] {
  const found: Passage[] = []
  const add = (text: string, start: number): void => {
    found.push({ text, line: lineAt(source, start), before: source.slice(Math.max(0, start - 200), start).trimEnd() })
  }
  new Visitor({
    Literal({ value, start, end }) {
      if (typeof value === 'string') add(source.slice(start + 1, end - 1), start)
    },
    TemplateLiteral({ quasis, start }) {
      add(quasis.map(({ value }) => value.raw).join('${}'), start)
    },
  }).visit(parseSync(file, source).program)
  return found
}

export function commentsOf(file: string, source: string): Passage[] {
  return parseSync(file, source).comments.map(({ value, start }) => {
    return { text: value, line: lineAt(source, start), before: '' }
  })
}

/** The text between the tags of a TSX file. */
export function jsxTextsOf(file: string, source: string): Passage[] {
  const found: Passage[] = []
  new Visitor({
    JSXText({ value, start }) {
      found.push({ text: value, line: lineAt(source, start), before: '' })
    },
  }).visit(parseSync(file, source).program)
  return found
}
