import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** What package.json pins: servers, and runtimes of JavaScript. */
export const RUNTIMES = ['node', 'bun', 'deno'] as const
export type Runtime = (typeof RUNTIMES)[number]

/** One of the binaries that package.json pins under an alias. */
export interface Pinned {
  /** What it is. */
  readonly kind: Runtime | 'pg'
  /** The alias, which is its folder in node_modules: `pg14-linux-x64`, `node20`. */
  readonly alias: string
  /** The number people choose by: 14, 20. */
  readonly major: number
  /** The release, as the program itself reports it: `14.23`, `20.20.2`. */
  readonly version: string
}

export const matrixDirectory = import.meta.dirname

/** package.json is the one list of versions; this reads it, so the table cannot speak of others than were run. */
export function pinned(kind: Runtime | 'pg'): Pinned[] {
  const manifest = JSON.parse(readFileSync(join(matrixDirectory, 'package.json'), 'utf8')) as {
    readonly optionalDependencies: Readonly<Record<string, string>>
  }
  return Object.entries(manifest.optionalDependencies)
    .flatMap(([alias, target]): Pinned[] => {
      const major = new RegExp(String.raw`^${kind}(\d+)`).exec(alias)?.[1]
      const release = /@(\d+\.\d+\.\d+)(?:-|$)/.exec(target)?.[1]
      if (major === undefined || release === undefined) return []
      // A PostgreSQL release has two numbers; npm asks for three.
      const version = kind === 'pg' ? release.replace(/\.0$/, '') : release
      return [{ kind, alias, major: Number(major), version }]
    })
    .toSorted((a, b) => a.major - b.major)
}

const TITLES: Readonly<Record<Runtime, string>> = { node: 'Node', bun: 'Bun', deno: 'Deno' }

/** As the table names it: `Node 20.20.2`. */
export function titleOf({ kind, version }: Pinned): string {
  return kind === 'pg' ? `PostgreSQL ${version}` : `${TITLES[kind]} ${version}`
}
