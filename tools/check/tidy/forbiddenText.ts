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
    // The look-behind lets addresses and relative paths through: `site/home/x`, `./work/`.
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
