import { readFile, writeFile } from 'node:fs/promises'
import pg from 'pg'
import { Lockstep } from '../../src/index.ts'
import { sqlFiles } from '../../src/postgres/index.ts'
import { startPostgres } from '../server/postgres.ts'
import { dumpFile, dumpOf } from './dump.ts'
import { listSignatures, signaturesFile } from './signatures.ts'
import { writeGenerated } from './writeGenerated.ts'

await writeGenerated()

// A server of its own, so that nothing but the migrations can have made what is described.
await using server = await startPostgres()
const pool = new pg.Pool({ connectionString: server.url(), max: 1 })
try {
  const lockstep = new Lockstep(pool)
  await lockstep.migrate()
  await writeFile(dumpFile, await dumpOf(pool, lockstep.schema))
} finally {
  await pool.end()
}

// `--release VERSION`: what the next release is compared with.
const at = process.argv.indexOf('--release')
if (at > 0) {
  const described = { files: sqlFiles(), description: await readFile(dumpFile, 'utf8') }
  await writeFile(signaturesFile, listSignatures(described, process.argv[at + 1] ?? 'none'))
}
