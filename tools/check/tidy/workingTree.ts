import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import { command } from '../command.ts'
import type { Tree } from './tree.ts'

// What .gitignore keeps out, for a copy of the sources that is not a git checkout.
const notOurs = new Set(['.git', 'node_modules', 'dist', '.lockstep', 'coverage'])

/** The files git tracks or would track: a fault is reported before it is committed, and ignored files are not checked. */
export async function workingTree(root: string): Promise<Tree> {
  const listed = await command('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], { cwd: root })
    .then((result) => (result.code === 0 ? result.stdout.split('\0').filter(Boolean) : undefined))
    .catch(() => undefined)
  const files = (listed ?? walk(root, root)).filter((path) => existsSync(join(root, path)))
  return {
    files: [...new Set(files)].toSorted(),
    read: (path) => readFileSync(join(root, path), 'utf8'),
  }
}

function walk(root: string, directory: string): string[] {
  return readdirSync(directory, { withFileTypes: true }).flatMap((entry) => {
    if (notOurs.has(entry.name)) return []
    const path = join(directory, entry.name)
    if (entry.isDirectory()) return walk(root, path)
    return entry.isFile() ? [relative(root, path).split(sep).join('/')] : []
  })
}
