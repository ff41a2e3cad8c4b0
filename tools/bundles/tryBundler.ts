import { KNOWN_VERSION } from '../../src/postgres/migrations.ts'
import { InvalidKeyError } from '../../src/errors.ts'
import { packageVersion } from '../../src/packageVersion.ts'
import type { Bundler } from './bundlers.ts'
import type { Project } from './project.ts'
import { visit, type Visited } from './visit.ts'

/** What a bundled program has to answer, less the texts of the page. */
export const EXPECTED = {
  work: {
    from: 0,
    to: KNOWN_VERSION,
    counted: 42,
    schema: 'ok',
    error: { name: InvalidKeyError.name, code: 'LOCKSTEP_INVALID_KEY' },
  },
  version: packageVersion(),
}

/** Bundles the program, runs what was made, and says what it answered. Each bundler has a schema of its own. */
export async function tryBundler(bundler: Bundler, project: Project, databaseUrl: string): Promise<Visited> {
  const bundle = await bundler.build(project)
  return visit(bundle, databaseUrl, `bundled by ${bundler.name}`)
}
