import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

interface Manifest {
  readonly version: string
  readonly dependencies: Readonly<Record<string, string>>
}

function manifestIn(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Manifest
}

/** The versions that a package of its own beside the root's is pinned to. */
export function pinnedVersions(folder: string): Readonly<Record<string, string>> {
  return manifestIn(folder).dependencies
}

/** Whether everything that the package names is installed, in the version that it names. */
export function areInstalled(folder: string): boolean {
  return Object.entries(pinnedVersions(folder)).every(([name, version]) => {
    const place = join(folder, 'node_modules', name)
    return existsSync(join(place, 'package.json')) && manifestIn(place).version.replace(/^v/, '') === version
  })
}

/**
 * Installs it, there and nowhere else, in the versions of its lockfile. All of the output goes to stderr: stdout is for reports. Not with
 * `npm ci`: that refuses a lockfile without the optional packages of other platforms, and not every registry has those.
 */
export function install(folder: string): void {
  const { status } = spawnSync(
    'npm',
    ['install', '--no-save', '--loglevel=error', '--prefer-offline', '--no-audit', '--no-fund'],
    { cwd: folder, stdio: ['ignore', 2, 2] },
  )
  if (status === 0 && areInstalled(folder)) return
  throw new Error(
    `npm install failed in ${folder}. It needs a registry or npm's cache, and a folder that it can write to.`,
  )
}
