import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { areInstalled, install, pinnedVersions } from '../../tools/dependencies.ts'

const folder = join(import.meta.dirname, '..')
const modules = join(folder, 'node_modules')
/** What pg-boss and graphile-worker ask for. */
const NODE_AT_LEAST = [22, 18] as const
const NODE = `node24-${process.platform}-${process.arch}`

/** The versions that are compared with, for the report. */
export function peerVersions(): Readonly<Record<string, string>> {
  return pinnedVersions(folder)
}

/** Installs the peers, here and nowhere else, when one of them is missing or of another version than is pinned. */
export function ensurePeers(): void {
  if (areInstalled(folder) && existsSync(peerNode())) return
  process.stderr.write('installing what is compared with\n')
  install(folder)
  if (!existsSync(peerNode())) throw new Error('npm ci left out the Node that the benches run on')
}

/** The Node that all contenders of one comparison run on: this one if it is new enough for all, otherwise the one that is installed with them. */
export function peerNode(): string {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  const enough = major > NODE_AT_LEAST[0] || (major === NODE_AT_LEAST[0] && minor >= NODE_AT_LEAST[1])
  return enough ? process.execPath : join(modules, NODE, 'bin', 'node')
}

/** A peer's module. Its types are stated by who uses it: it need not be there when the code is checked. */
export async function loadPeer<Module>(name: string): Promise<Module> {
  return (await import(name)) as Module
}
