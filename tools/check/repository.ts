import { fileURLToPath } from 'node:url'
import { join } from 'node:path'

/** The root of the repository, without a trailing slash. */
export const root = fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '')

/** A development dependency's program: called by path, so that no check can reach for the network as npx might. */
export function tool(name: string): string {
  return join(root, 'node_modules', '.bin', name)
}
