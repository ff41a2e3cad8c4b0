import { cpSync } from 'node:fs'
import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { runCommand } from './command.ts'
import { type Mutant, patched, patchesOf } from './mutant.ts'

export const ROOT = fileURLToPath(new URL('../../', import.meta.url))

/** What the commands need that find mutants out. */
const PARTS = [
  'src',
  'sql',
  'docs/decisions',
  'docs/operating',
  'console',
  'desk',
  'examples/two-databases',
  'proofs',
  'tools',
  'package.json',
  'tsconfig.json',
  'tsconfig.dist.json',
  'vitest.config.ts',
]
const LEFT_OUT = new Set(['node_modules', '.lockstep', 'dist'])

/** A folder with a copy of this repository in which one thing is broken; nothing is, where there is no mutant. */
export async function makeBrokenCopy(mutant: Mutant | undefined): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'lockstep-mutant-'))
  try {
    for (const part of PARTS) {
      const filter = (source: string): boolean => !LEFT_OUT.has(basename(source))
      // Not the asynchronous one, which once did not come back (Node 20.20).
      cpSync(join(ROOT, part), join(folder, part), { recursive: true, filter })
    }
    await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'))
    const patches = mutant === undefined ? [] : patchesOf(mutant)
    for (const patch of patches) {
      const file = join(folder, patch.file)
      await writeFile(file, patched(mutant?.name ?? '', await readFile(file, 'utf8'), patch))
    }
    if (patches.some(({ file }) => file.startsWith('tools/schema/'))) await generateFunctions(folder)
    return folder
  } catch (error) {
    await removeCopy(folder)
    throw error
  }
}

/** Writes the functions of the schema that are generated from a patched template. */
async function generateFunctions(folder: string): Promise<void> {
  const { code, err } = await runCommand(folder, ['--import', 'tsx', 'tools/schema/generate.ts'], 60_000)
  if (code !== 0) throw new Error(`tools/schema/generate.ts failed: ${err}`)
}

export function removeCopy(folder: string): Promise<void> {
  return rm(folder, { recursive: true, force: true, maxRetries: 5 })
}
