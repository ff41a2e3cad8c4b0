import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { matrixDirectory, type Pinned } from './versions.ts'

/** Installs the binaries when one of them is missing or is not the pinned release, and at no other time. */
export function ensureInstalled(wanted: readonly Pinned[]): void {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    throw new Error(
      `the matrix's binaries are for linux-x64, and this is ${process.platform}-${process.arch}: use npm test`,
    )
  }
  if (wanted.every(isInstalled)) return
  console.error('installing the PostgreSQL and Node binaries of the matrix')
  // All of the output goes to stderr: stdout is the table's.
  const install = spawnSync('npm', ['ci'], { cwd: matrixDirectory, stdio: ['ignore', 2, 2] })
  if (install.status !== 0) throw new Error('npm ci failed in tools/matrix')
  const missing = wanted.filter((each) => !isInstalled(each))
  // They are optional dependencies: npm ci is content without them, and we are not.
  if (missing.length > 0) throw new Error(`npm ci left out ${missing.map(({ alias }) => alias).join(', ')}`)
}

function isInstalled({ alias, version }: Pinned): boolean {
  const manifest = join(matrixDirectory, 'node_modules', alias, 'package.json')
  if (!existsSync(manifest)) return false
  const installed = (JSON.parse(readFileSync(manifest, 'utf8')) as { readonly version: string }).version
  return installed === version || installed.startsWith(`${version}.`)
}
