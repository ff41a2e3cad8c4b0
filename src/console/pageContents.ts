import { type Dirent, readdirSync, readFileSync } from 'node:fs'
import { join, sep } from 'node:path'
import { fileURLToPath } from 'node:url'

/** One file of the built page. Its path is below the mount, without a slash at its beginning. */
export interface PageContent {
  readonly path: string
  readonly text: string
}

const FOLDER = fileURLToPath(new URL('../../console/dist', import.meta.url))

/**
 * The files of the built page; none before `npm run build:page`. This module is for the repository. `npm run build` writes another one in
 * its place that contains the texts: the published library reads no file, so that bundlers need no configuration.
 */
export function pageContents(folder = FOLDER): readonly PageContent[] {
  return entriesOf(folder)
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name))
    .map((file) => ({
      path: file.slice(join(folder, sep).length).replaceAll(sep, '/'),
      text: readFileSync(file, 'utf8'),
    }))
    .toSorted((a, b) => (a.path < b.path ? -1 : 1))
}

function entriesOf(folder: string): Dirent[] {
  try {
    return readdirSync(folder, { recursive: true, withFileTypes: true })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}
