import { spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { matrixDirectory, type Pinned } from './versions.ts'

/** Installs the binaries when one of them is missing or is not the pinned release, and at no other time. */
export function ensureInstalled(wanted: readonly Pinned[]): void {
  refuseOtherPlatforms()
  if (wanted.every(isInstalled)) return
  console.error('installing the PostgreSQL and Node binaries of the matrix')
  // All of the output goes to stderr: stdout is the table's.
  const install = spawnSync('npm', ['ci'], { cwd: matrixDirectory, stdio: ['ignore', 2, 2] })
  if (install.status !== 0) throw new Error('npm ci failed in tools/matrix')
  const missing = wanted.filter((each) => !isInstalled(each))
  // They are optional dependencies: npm ci is content without them, and we are not.
  if (missing.length > 0) throw new Error(`npm ci left out ${missing.map(({ alias }) => alias).join(', ')}`)
}

/**
 * Installs one of them without the others, which are many times its size: a folder of its own with that part of the two manifests. It
 * is pinned by the same integrity, and `npm ci` here replaces it with all of them.
 */
export function ensureAlone(wanted: Pinned): void {
  refuseOtherPlatforms()
  if (isInstalled(wanted)) return
  const { alias } = wanted
  const folder = mkdtempSync(join(tmpdir(), 'lockstep-install-'))
  try {
    const manifest = readManifest('package.json')
    const lock = readManifest('package-lock.json')
    const target = { [alias]: manifest.optionalDependencies?.[alias] }
    const place = `node_modules/${alias}`
    const packages = { '': { ...lock.packages?.[''], optionalDependencies: target }, [place]: lock.packages?.[place] }
    writeFileSync(join(folder, 'package.json'), JSON.stringify({ ...manifest, optionalDependencies: target }))
    writeFileSync(join(folder, 'package-lock.json'), JSON.stringify({ ...lock, packages }))
    const install = spawnSync('npm', ['ci'], { cwd: folder, stdio: ['ignore', 2, 2] })
    if (install.status !== 0 || !existsSync(join(folder, place))) throw new Error(`npm ci left out ${alias}`)
    const unfinished = join(matrixDirectory, 'node_modules', `.${alias}-${process.pid}`)
    cpSync(join(folder, place), unfinished, { recursive: true, verbatimSymlinks: true })
    rmSync(join(matrixDirectory, place), { recursive: true, force: true })
    renameSync(unfinished, join(matrixDirectory, place))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

interface Manifest {
  readonly optionalDependencies?: Readonly<Record<string, string>>
  readonly packages?: Readonly<Record<string, object>>
}

function readManifest(name: string): Manifest {
  return JSON.parse(readFileSync(join(matrixDirectory, name), 'utf8')) as Manifest
}

function refuseOtherPlatforms(): void {
  if (process.platform === 'linux' && process.arch === 'x64') return
  throw new Error(
    `the matrix's binaries are for linux-x64, and this is ${process.platform}-${process.arch}: use npm test`,
  )
}

function isInstalled({ alias, version }: Pinned): boolean {
  const manifest = join(matrixDirectory, 'node_modules', alias, 'package.json')
  if (!existsSync(manifest)) return false
  const installed = (JSON.parse(readFileSync(manifest, 'utf8')) as { readonly version: string }).version
  return installed === version || installed.startsWith(`${version}.`)
}
