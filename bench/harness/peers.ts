import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const folder = join(import.meta.dirname, '..')
const modules = join(folder, 'node_modules')
/** What pg-boss and graphile-worker ask for. */
const NODE_AT_LEAST = [22, 18] as const
const NODE = `node24-${process.platform}-${process.arch}`

interface Manifest {
  readonly dependencies: Readonly<Record<string, string>>
}

/** The versions that are compared with, for the report. */
export function peerVersions(): Readonly<Record<string, string>> {
  return (JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Manifest).dependencies
}

/** Installs the peers, here and nowhere else, when one of them is missing or of another version than is pinned. */
export function ensurePeers(): void {
  if (isComplete()) return
  // All of the output goes to stderr: stdout is the report's.
  process.stderr.write('installing what is compared with\n')
  const { status } = spawnSync('npm', ['ci', '--loglevel=error'], { cwd: folder, stdio: ['ignore', 2, 2] })
  if (status !== 0 || !isComplete()) throw new Error('npm ci failed in bench')
}

function isComplete(): boolean {
  const installed = Object.entries(peerVersions()).every(([name, version]) => {
    const manifest = join(modules, name, 'package.json')
    if (!existsSync(manifest)) return false
    return (JSON.parse(readFileSync(manifest, 'utf8')) as { version: string }).version.replace(/^v/, '') === version
  })
  return installed && existsSync(peerNode())
}

/** The Node that all contenders of one comparison run on: this one where it is new enough for all, else the one that is brought along. */
export function peerNode(): string {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  const enough = major > NODE_AT_LEAST[0] || (major === NODE_AT_LEAST[0] && minor >= NODE_AT_LEAST[1])
  return enough ? process.execPath : join(modules, NODE, 'bin', 'node')
}

/** A peer's module. Its types are stated by who uses it: it need not be there when the code is checked. */
export async function loadPeer<Module>(name: string): Promise<Module> {
  return (await import(name)) as Module
}
