/** A program for the tests to kill: starts the servers its arguments name, says where, and waits for its end. */
import { startPgBouncer } from '../pgbouncer.ts'
import { startPostgres } from '../postgres.ts'

const [dataDir, ...wishes] = process.argv.slice(2)
const server = await startPostgres(dataDir ? { dataDir } : {})
if (wishes.includes('crashed-before')) {
  await server.crash()
  await server.start()
  await server.restart()
}
if (wishes.includes('pgbouncer')) await startPgBouncer({ postgresPort: server.port, poolMode: 'transaction' })
console.log(JSON.stringify({ pid: server.pid, dataDir: server.dataDir }))
setInterval(() => {}, 60_000)
