import { basename } from 'node:path'
import { type Finding, lineAt, type Rule } from './tree.ts'

/** Lockfiles pin by integrity, not by address: everybody installs from the registry that they themselves trust. */
export const noDownloadAddresses: Rule = {
  name: 'no-download-addresses',
  find(tree) {
    return tree.files.flatMap((file): Finding[] => {
      const name = basename(file)
      if (/^(package-lock|npm-shrinkwrap)\.json$/.test(name)) {
        return every(file, tree.read(file), /"(?:resolved|tarball)":\s*"[^"]*:\/\/[^"]*"/g, 'a download address')
      }
      if (name === '.npmrc') return every(file, tree.read(file), /^.*(?:registry\s*=|_auth|\/\/).*$/gm, 'a registry')
      if (/\.(json|ya?ml|md|toml)$/.test(name))
        return every(file, tree.read(file), /"resolved":\s*"http/g, 'a download address')
      return []
    })
  },
}

function every(file: string, text: string, pattern: RegExp, what: string): Finding[] {
  return [...text.matchAll(pattern)].map((match) => ({
    file,
    line: lineAt(text, match.index),
    message: `${what}: ${match[0].trim().slice(0, 80)}`,
  }))
}
