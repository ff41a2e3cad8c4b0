import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { type Check, faultsOf } from './check.ts'
import { command } from './command.ts'
import { entryFaults } from './entriesAndRooms.ts'
import { root, tool } from './repository.ts'
import { manifest, tarball } from './tarball.ts'

export const exportsMap: Check = {
  name: 'exports',
  async run() {
    const packed = await tarball()
    const { exports } = await manifest()
    const faults = entryFaults(exports, rooms(), (path) => existsSync(join(root, path)))
    const publint = await command(tool('publint'), ['run', packed.path, '--strict'], { cwd: root })
    faults.push(...faultsOf(publint, 'publint'))
    // attw would fetch the published types of packages without any; ours has its own.
    const attwArgs = [packed.path, '--profile', 'esm-only', '--no-definitely-typed', '--no-emoji', '--format', 'ascii']
    faults.push(...faultsOf(await command(tool('attw'), attwArgs, { cwd: root }), 'attw'))
    return { faults, note: `${Object.keys(exports).length} entries` }
  },
}

function rooms(): string[] {
  return readdirSync(join(root, 'src'), { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && existsSync(join(root, 'src', entry.name, 'index.ts')))
    .map((entry) => entry.name)
}
