import { posix } from 'node:path'
import { blocksOf, proseOf } from './page.ts'
import { commentsOf } from './source.ts'
import { type Finding, lineAt, placesOf, type Rule, type Tree } from './tree.ts'

/**
 * No page and no comment names a file that does not exist. In a page that is every path in backticks, every path in a block of commands,
 * and every file in a listing of a folder; in a comment, every path of a source, a page or SQL. Links are checked by document-links.
 * Hand-written: no tool that we found compares what prose names with a repository.
 */
export const namedFiles: Rule = {
  name: 'named-files',
  find(tree) {
    const places = new Places(tree)
    return tree.files.flatMap((file): Finding[] => {
      const names = namesIn(file, tree, places)
      return names.flatMap(({ name, line }) => {
        return places.has(name, file) ? [] : [{ file, line, message: `${name} does not exist` }]
      })
    })
  },
}

interface Named {
  readonly name: string
  readonly line: number
}

// Files that a page asks its reader to write, or that a command writes.
const filesOfReaders = new Set(['counter.ts', 'lockstep-prove.html'])

const extensions = 'tsx?|sql|md|mjs|json|ya?ml|svg|png|html|css'
const fileName = new RegExp(String.raw`^(?:[\w@*-][\w.@*-]*/)*[\w*-][\w.*-]*\.(?:${extensions})$`)
const inComment = /(?<![\w./@$*<>{}…-])(?:[\w-][\w.-]*\/)*[\w-][\w.-]*\.(?:tsx?|sql|md|svg)\b(?![\w(/])/g

function namesIn(file: string, tree: Tree, places: Places): Named[] {
  if (file.endsWith('.md')) return namesInPage(tree.read(file), places)
  if (/\.(tsx?|mts|mjs)$/.test(file)) return commentsOf(file, tree.read(file)).flatMap(namesInComment)
  if (file.endsWith('.sql')) return commentsOfSql(tree.read(file)).flatMap(namesInComment)
  return []
}

function namesInComment({ text, line }: { readonly text: string; readonly line: number }): Named[] {
  return [...text.matchAll(inComment)].map((match) => ({ name: match[0], line: line + lineAt(text, match.index) - 1 }))
}

function commentsOfSql(text: string): { text: string; line: number }[] {
  return [...text.matchAll(/--[^\n]*/g)].map((match) => ({ text: match[0], line: lineAt(text, match.index) }))
}

function namesInPage(text: string, places: Places): Named[] {
  const prose = proseOf(text)
  const spans = [...prose.matchAll(/(?<!`)`([^`\n]+)`(?!`)/g)].flatMap((span) =>
    (span[1] ?? '')
      .split(/\s+/)
      .filter((word) => places.begins(word) || fileName.test(word))
      .map((name) => ({ name, line: lineAt(prose, span.index) })),
  )
  const blocks = blocksOf(text).filter(({ language }) => /^(sh|text|)$/.test(language))
  return [...spans, ...blocks.flatMap(({ body, offset }) => namesInBlock(body, lineAt(text, offset), places))]
}

/** Commands, and listings: a folder of the repository on a line by itself, then what is in it, indented. */
function namesInBlock(body: string, start: number, places: Places): Named[] {
  let folder: string | undefined
  return body.split('\n').flatMap((text, index): Named[] => {
    const [first = '', ...rest] = text.trim().split(/\s+/)
    const line = start + index
    if (!text.startsWith(' ')) folder = first.endsWith('/') && places.begins(first) ? first : undefined
    else if (folder !== undefined && fileName.test(first)) return [{ name: folder + first, line }]
    return [first, ...rest].filter((word) => places.begins(word)).map((name) => ({ name, line }))
  })
}

class Places {
  readonly #all: ReadonlySet<string>
  readonly #ends: ReadonlySet<string>
  readonly #folders: ReadonlySet<string>

  constructor(tree: Tree) {
    this.#all = placesOf(tree)
    this.#ends = new Set(tree.files.flatMap(endingsOf))
    this.#folders = new Set(tree.files.filter((file) => file.includes('/')).map((file) => file.split('/')[0] ?? ''))
  }

  /** Whether it is written as a path from the root: its first part is a folder of the repository. */
  begins(word: string): boolean {
    const [folder = ''] = word.split('/')
    return /^[\w.@*/-]+$/.test(word) && word.includes('/') && this.#folders.has(folder)
  }

  has(name: string, page: string): boolean {
    const path = name.replace(/\/$/, '')
    if (filesOfReaders.has(path) || isBuilt(path)) return true
    if (path.includes('*')) return this.#matches(path)
    return this.#all.has(path) || this.#ends.has(path) || this.#all.has(posix.join(posix.dirname(page), path))
  }

  #matches(pattern: string): boolean {
    const expression = new RegExp(`^${pattern.replaceAll('.', String.raw`\.`).replaceAll(/\*+/g, '[^/]*')}$`)
    return [...this.#ends].some((end) => expression.test(end))
  }
}

// What a build leaves behind is not in the repository.
function isBuilt(path: string): boolean {
  return path.split('/').some((part) => part === 'dist' || part === 'node_modules') || path === 'sbom.cdx.json'
}

/** The file's name, then with one folder before it, and so on: as a page names it for short. */
function endingsOf(file: string): string[] {
  const parts = file.split('/')
  return parts.map((_, index) => parts.slice(index).join('/'))
}
