import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type Check, type Fault, faultsOf } from './check.ts'
import { command } from './command.ts'
import { entryFaults, pathFaults } from './entries.ts'
import { root, tool } from './repository.ts'
import { type Manifest, manifest, tarball } from './tarball.ts'

export const exportsMap: Check = {
  name: 'exports',
  async run() {
    const packed = await tarball()
    const { exports } = await manifest()
    const faults = entryFaults(exports, (path) => existsSync(join(root, path)))
    const source = (target: string): string => target.replace(/^\.\/dist\/(.*)\.js$/, './src/$1.ts')
    faults.push(...(await faultsOfPaths('tsconfig.json', exports, source)))
    faults.push(...(await faultsOfPaths('tsconfig.dist.json', exports, (target) => target)))
    const publint = await command(tool('publint'), ['run', packed.path, '--strict'], { cwd: root })
    faults.push(...faultsOf(publint, 'publint'))
    // attw would fetch the published types of packages without any; ours has its own.
    const attwArgs = [packed.path, '--profile', 'esm-only', '--no-definitely-typed', '--no-emoji', '--format', 'ascii']
    faults.push(...faultsOf(await command(tool('attw'), attwArgs, { cwd: root }), 'attw'))
    return { faults, note: `${Object.keys(exports).length} entries` }
  },
}

async function faultsOfPaths(
  file: string,
  exports: Manifest['exports'],
  from: (target: string) => string,
): Promise<Fault[]> {
  // The file has comments: the compiler reads it as JSON with them.
  const text = (await readFile(join(root, file), 'utf8')).replaceAll(/^\s*\/\/.*$/gm, '')
  const { compilerOptions } = JSON.parse(text) as { compilerOptions: { paths: Record<string, string[]> } }
  return pathFaults(file, compilerOptions.paths, exports, from)
}
