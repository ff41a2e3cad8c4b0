import { createRequire } from 'node:module'
import { areInstalled, install } from '../dependencies.ts'

const folder = import.meta.dirname

/** Whether the ORMs are there: `npm test` installs them where it can. */
export function ormsAreInstalled(): boolean {
  return areInstalled(folder)
}

/** Installs the ORMs when one of them is missing or of another version than is pinned. */
export function ensureOrms(): void {
  if (ormsAreInstalled()) return
  process.stderr.write('installing the ORMs that are tried on tx.client\n')
  install(folder)
}

const load = createRequire(import.meta.url)

/** The module of an ORM. Its types are stated by who uses it: it need not be there when the code is checked. */
// oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- as import() of a name that is known
export function loadOrm<Module>(name: string): Module {
  return load(name) as Module
}
