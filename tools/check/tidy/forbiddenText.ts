/**
 * Names and texts that a file must not have. Hand-written because they are in comments, pages, lockfiles and paths, which a linter of
 * TypeScript does not read.
 */
import { basename } from 'node:path'
import { isLibrarySource, lineAt, type Rule, moduleOf } from './tree.ts'

interface Forbidden {
  readonly name: string
  readonly in: (path: string) => boolean
  /** Searched for in the path, in the text, or in both. */
  readonly where: readonly ('path' | 'text')[]
  readonly pattern: RegExp
  readonly message: (found: string) => string
}

/**
 * Words that readers have to translate, and what we write instead. Only phrases that have no other use in the sources: "somebody", "life" and
 * "line", for example, are also names of columns, of things in examples, and of lines of text.
 */
const plainWords: readonly (readonly [pattern: string, instead: string])[] = [
  ['whoever', 'the caller, the session, the process'],
  ['(?:is|are|was|were|be|been) told', 'reports, receives, is asked'],
  ['anew', 'again'],
  ['mended', 'fixed, repaired'],
  ['dear(?:er|est)?', 'expensive'],
  ['(?:costs|asks) little', 'cheap'],
  ['(?:becomes|became|become) of', 'the outcome'],
  ['its fate', 'the outcome'],
  ['(?:is|are|was|were) given back', 'releases, returns'],
  ['put right', 'fixed, repaired'],
  ['(?:stands?|waits?|waiting) in line', 'queue'],
  ['wait places?', 'server wait slots'],
  ['patience', 'wait budget'],
  ['grounds', 'context'],
  ['as far as it is known', 'if known'],
  ['(?:this|each|every) room', 'module'],
]

/** The same for pages alone: the sources still have these phrases. */
const plainWordsOfPages: readonly (readonly [pattern: string, instead: string])[] = [
  ['put(?:s|ting)? aside', 'parked, stored separately'],
  ['side by side', 'in parallel, at the same time'],
  ['in hand', 'in progress'],
  ['looks? after', 'maintains, manages'],
  ['to be had', 'available'],
  ['anybody', 'the caller, another session'],
  ['gives? back', 'releases, returns'],
  ['holds? up', 'blocks, delays'],
  ['given out again', 'assigned again'],
  ['taken for', 'counts as'],
]

function messageOf(words: typeof plainWords): (found: string) => string {
  return (found) =>
    `"${found}": write ${words.find(([pattern]) => new RegExp(`^${pattern}$`, 'i').test(found))?.[1] ?? 'a plain word'}`
}

const forbidden: readonly Forbidden[] = [
  {
    // A name that fits anything attracts everything. Files and folders are called by what they do.
    name: 'descriptive-names',
    in: (path) => /\.(ts|tsx|mts|cts|js|mjs|cjs)$/.test(path),
    where: ['path'],
    pattern: /(?<![^/])(?:common|helpers?|interfaces?|misc|types?|utils?)(?=[./])/gi,
    message: (found) => `${found} says nothing: name it by what it does`,
  },
  {
    // The core of transactions names none of its optional features. A feature is a part, in a module of its own.
    name: 'core-names-no-part',
    in: (path) => isLibrarySource(path) && moduleOf(path) === 'transactions',
    where: ['path', 'text'],
    pattern: /\w*(?:stream|shadow|retention|rollout|outbox|enqueu)\w*|observed?[ -]?keys?/gi,
    message: (found) =>
      `${found} is an optional feature: make it a part (src/transactions/part.ts), in a module above transactions`,
  },
  {
    name: 'plain-words',
    in: (path) =>
      /\.(ts|tsx|md|sql|yml|html)$/.test(path) &&
      !path.startsWith('tools/check/tidy/forbiddenText.') &&
      // The functions of the previous release.
      path !== 'tools/previousRelease/dump.sql',
    where: ['text'],
    pattern: new RegExp(`\\b(?:${plainWords.map(([pattern]) => pattern).join('|')})\\b`, 'gi'),
    message: messageOf(plainWords),
  },
  {
    name: 'plain-words-of-pages',
    in: (path) => path === 'README.md' || (path.startsWith('docs/') && path.endsWith('.md')),
    where: ['text'],
    pattern: new RegExp(`\\b(?:${plainWordsOfPages.map(([pattern]) => pattern).join('|')})\\b`, 'gi'),
    message: messageOf(plainWordsOfPages),
  },
  {
    // The look-behind lets addresses and relative paths through: site/home/x, ./work/.
    name: 'no-machine-paths',
    in: (path) => !/\.(png|jpe?g|gif|ico|woff2?|webp|wasm|gz|tgz|zip|pdf)$/.test(path),
    where: ['text'],
    pattern: /(?<![\w.~$}*)\]-])\/(?:work|root|home|Users)\/[\w.-]+|\b[A-Z]:\\Users\\\w+/g,
    message: (found) => `${found} is a path of one machine`,
  },
  {
    // Lockfiles pin by integrity, not by address: users install from the registry that they trust.
    name: 'no-download-addresses',
    in: (path) => /\.(json|ya?ml|md|toml)$/.test(path),
    where: ['text'],
    pattern: /"(?:resolved|tarball)":\s*"[^"]*:\/\/[^"]*"/g,
    message: (found) => `a download address: ${found.slice(0, 80)}`,
  },
  {
    name: 'no-registries',
    in: (path) => basename(path) === '.npmrc',
    where: ['text'],
    pattern: /^.*(?:registry\s*=|_auth|\/\/).*$/gm,
    message: (found) => `a registry: ${found.slice(0, 80)}`,
  },
]

export const forbiddenTexts: readonly Rule[] = forbidden.map((each) => ({
  name: each.name,
  find(tree) {
    return tree.files.filter(each.in).flatMap((file) =>
      each.where.flatMap((where) => {
        const text = where === 'path' ? file : tree.read(file)
        return [...text.matchAll(each.pattern)].map((match) => ({
          file,
          line: lineAt(text, match.index),
          message: each.message(match[0].trim()),
        }))
      }),
    )
  },
}))
