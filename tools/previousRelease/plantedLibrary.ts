import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { BuiltLibrary } from './buildLibrary.ts'

/** A copy of a library in which one text of one file is another: what a check has to find out. It is removed with its scope. */
export function plantedLibrary(
  { commit, folder }: BuiltLibrary,
  file: string,
  text: string,
  planted: string,
): BuiltLibrary & AsyncDisposable {
  // Beside the original, so that Node finds its `node_modules`.
  const copy = mkdtempSync(join(dirname(folder), 'planted-'))
  cpSync(folder, copy, { recursive: true })
  const path = join(copy, file)
  const before = readFileSync(path, 'utf8')
  if (!before.includes(text)) throw new Error(`${file} does not have: ${text}`)
  writeFileSync(
    path,
    before.replace(text, () => planted),
  )
  return {
    commit,
    folder: copy,
    entry: pathToFileURL(join(copy, 'dist', 'index.js')),
    async [Symbol.asyncDispose]() {
      rmSync(copy, { recursive: true, force: true })
    },
  }
}
