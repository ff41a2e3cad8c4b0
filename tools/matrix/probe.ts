/**
 * Says which runtime and which PostgreSQL a cell really runs on. The matrix believes this and not its own variables: a
 * binary that was not found and silently replaced by the default one would make fifteen green cells out of one.
 */
import { execFileSync } from 'node:child_process'
import { startPostgres } from '../server/postgres.ts'
import { withClient } from '../server/withClient.ts'
import { runtimeVersion } from './runtimeVersion.ts'

const server = await startPostgres({})
try {
  const { rows } = await withClient(server.url(), (client) =>
    client.query<{ server_version: string }>('show server_version'),
  )
  const answer = {
    runtime: runtimeVersion(),
    // What a child finds by name: the tests start programs of their own.
    nodeOnPath: execFileSync('node', ['--version'], { encoding: 'utf8' }).trim().replace(/^v/, ''),
    postgres: rows[0]?.server_version ?? 'unknown',
  }
  console.log(JSON.stringify(answer))
} finally {
  await server.stop()
}
