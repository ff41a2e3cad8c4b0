/**
 * The words that our texts do not use, what they say instead, and the uses that stay, each with its reason. Readers should not have to
 * translate. The check reads prose: pages without their code, comments, test names, and literals that are sentences. Names in code are not
 * prose, so columns such as `incarnation.value` stay, and so does a name in backticks.
 */
import { blanked, proseOf } from './page.ts'
import { commentsOf, jsxTextsOf, literalsOf } from './source.ts'
import { type Finding, lineAt, type Rule, testFile } from './tree.ts'

export interface Word {
  /** Regular expressions without flags. Matched as whole words, without case unless `caseSensitive`. */
  readonly not: readonly string[]
  readonly but: string
  readonly caseSensitive?: true
  /** Why the expression is narrower than the word: what stays of it. */
  readonly narrow?: string
  /** Uses that stay: the match with what is around it on its line, and why. */
  readonly stays?: readonly (readonly [use: RegExp, why: string])[]
}

export const words: readonly Word[] = [
  {
    not: ['told', 'tells'],
    but: 'reports, receives, says, is asked',
    narrow: '"cannot tell which" is idiomatic',
  },
  {
    not: ['whoever', 'who comes', 'comes? second', 'nobody', 'somebody', 'anybody', 'everybody'],
    but: 'the caller, another session, no process',
  },
  { not: ['dear(?:er|est)?'], but: 'expensive' },
  { not: ['(?:costs|asks) little'], but: 'is cheap, polls rarely' },
  { not: ['anew'], but: 'again' },
  { not: ['mended', 'put right'], but: 'fixed, repaired' },
  { not: ['(?:becomes|became|become) of', '(?:its|their|whose) fate'], but: 'the outcome, whether it committed' },
  { not: ['gives? back', 'gave back', 'giving back', 'given back'], but: 'releases, returns' },
  {
    not: ['in line', '(?:stands?|waits?|out of|leaves?|joins?|for) the line'],
    but: 'queue',
    narrow: 'a line of text, of code or of a chart',
  },
  {
    not: ['life', 'lives', 'incarnations?'],
    but: 'server epoch',
    narrow: '"epoch" alone is short for it after the first mention, and is the Unix epoch',
  },
  {
    not: ['homes?'],
    but: 'origin server',
    stays: [
      [/home (?:directory|page)|private home/i, "a user's directory, the first page of a site"],
      [/^layout: home$/, 'a name that VitePress defines'],
    ],
  },
  {
    not: ['doors?', 'floors?', '(?:this|each|every|other|which) rooms?'],
    but: 'module, entry point, layer',
    narrow: 'a hotel room in an example, and room for more',
  },
  {
    not: ['guests?', 'houses?'],
    but: 'the industry’s word',
    stays: [[/guests? book/i, 'the guest of a hotel, in an example']],
  },
  { not: ['grounds'], but: 'context' },
  { not: ['ways? in'], but: 'opening the transaction', stays: [[/ways? in which/i, 'the manner']] },
  { not: ['patience'], but: 'wait budget, deadline' },
  {
    not: ['(?:a|the|its|their|this|each|every) stay', 'stays of'],
    but: 'lock retention',
    narrow: 'the verb: a row stays, a connection stays open',
  },
  { not: ['wait places?'], but: 'server wait slots', narrow: 'any other place' },
  { not: ['seeing'], but: 'inspect' },
  {
    not: ['in small', 'small size'],
    but: 'scaled-down',
    narrow: 'a small table; `--small` is an option of the attacks and benches',
  },
  {
    not: ['as far as (?:it|that|is|this)', 'so far as'],
    but: 'if known',
    narrow: 'the extent: as far as the newest event',
  },
  {
    not: ['(?<=[,;:(] ?|\\b(?:or|and) )else', '(?<=\\. |^|[*/]\\s)Else'],
    but: 'otherwise',
    caseSensitive: true,
    narrow: '"nothing else", "anything else", "or anything else"',
  },
  {
    not: ['may not', '[Nn]othing may', '[Nn]one may', '[Nn]o \\w+ may', 'only \\w+ may'],
    but: 'cannot, must not (permission), might not (possibility)',
    narrow: 'the possibility without "not": an answer may be late',
    caseSensitive: true,
    stays: [[/may or may not/, 'both are possible']],
  },
  {
    not: [
      '(?:behavi|col|fav|hon|neighb)our(?:s|ed|ing)?',
      '(?:initial|normal|organ|recogn|serial)is(?:es?|ed|ing|ations?|able)',
      'catalogues?',
      'towards',
      'for ever',
    ],
    but: 'the American spelling',
  },
  { not: ['put(?:s|ting)? aside'], but: 'parked, stored separately' },
  { not: ['side by side'], but: 'in parallel, at the same time' },
  { not: ['in hand'], but: 'in progress' },
  { not: ['looks? after'], but: 'maintains, manages' },
  { not: ['to be had'], but: 'available' },
  { not: ['holds? up'], but: 'blocks, delays' },
  { not: ['given out again'], but: 'assigned again' },
  { not: ['under way'], but: 'in progress' },
  { not: ['at the most'], but: 'at most' },
  { not: ['turn(?:s|ed)? away'], but: 'refuses, rejects' },
  { not: ['taken for'], but: 'counts as' },
]

interface Text {
  readonly text: string
  /** The line of its first character. */
  readonly line: number
}

const isPage = (file: string): boolean => file.endsWith('.md')
const read = /\.(?:ts|tsx|md|sql|ya?ml|html)$/

/** Files that have the words because they name them, or because they are records of another version. */
const skipped: ReadonlySet<string> = new Set([
  'tools/check/tidy/plainWords.ts',
  'tools/check/tidy/plainWords.unit.test.ts',
  'tools/previousRelease/dump.sql',
])

const withoutCode = (text: string): string => text.replaceAll(/`[^`\n]*`/g, blanked)
const sqlWords = /\b(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|FROM|VALUES)\b/
const calls = /\b(?:test|it|describe)(?:\.\w+(?:\([^]*\))?)*\($/

/** A test name; outside of tests, whose other literals are data, a literal of several words. SQL is checked by its comments. */
function isSentence(file: string, text: string, before: string): boolean {
  if (calls.test(before)) return true
  if (testFile.test(file) || !/\w+ \w+ \w+/.test(text)) return false
  return /^[A-Z][a-z]/.test(text) || !(file.endsWith('.sql.ts') || sqlWords.test(text))
}

/** The comments of SQL, everything else blanked. */
function sqlComments(text: string): string {
  return text.replaceAll(
    /^(.*?)(--.*)?$/gm,
    (_, code: string, comment: string | undefined) => blanked(code) + (comment ?? ''),
  )
}

function proseIn(file: string, text: string): Text[] {
  if (isPage(file)) return [{ text: withoutCode(proseOf(text)), line: 1 }]
  if (file.endsWith('.sql')) return [{ text: withoutCode(sqlComments(text)), line: 1 }]
  if (!/\.tsx?$/.test(file)) return [{ text: withoutCode(text), line: 1 }]
  const literals = literalsOf(file, text)
  return [
    ...commentsOf(file, text).map((comment) => ({ ...comment, text: withoutCode(comment.text) })),
    ...(file.endsWith('x') ? jsxTextsOf(file, text) : []),
    ...literals.filter((each) => isSentence(file, each.text, each.before)),
    ...(file.endsWith('.sql.ts')
      ? literals.map((each) => ({ ...each, text: withoutCode(sqlComments(each.text)) }))
      : []),
  ]
}

function lineOf(text: string, offset: number): string {
  const end = text.indexOf('\n', offset)
  return text.slice(text.lastIndexOf('\n', offset - 1) + 1, end === -1 ? undefined : end)
}

function findIn(word: Word, pattern: RegExp, { text, line }: Text): Omit<Finding, 'file'>[] {
  return [...text.matchAll(pattern)]
    .filter(({ index }) => word.stays?.some(([use]) => use.test(lineOf(text, index))) !== true)
    .map((match) => ({
      line: line + lineAt(text, match.index) - 1,
      message: `"${match[0].replaceAll(/\s+/g, ' ').trim()}": write ${word.but}`,
    }))
}

export const plainWords: Rule = {
  name: 'plain-words',
  find(tree) {
    const patterns = words.map((word) => {
      const text = `(?<![\\w-])(?:${word.not.join('|')})(?![\\w-])`
      return { word, pattern: new RegExp(text, word.caseSensitive ? 'gm' : 'gim') }
    })
    return tree.files
      .filter((file) => read.test(file) && !skipped.has(file))
      .flatMap((file) => {
        const texts = proseIn(file, tree.read(file))
        return patterns
          .flatMap(({ word, pattern }) => texts.flatMap((text) => findIn(word, pattern, text)))
          .map((finding) => ({ file, ...finding }))
      })
  },
}
