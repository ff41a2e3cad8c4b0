/**
 * `npm run previous:dump`: has the library of the previous release make a schema and use all of it, and writes a dump of that beside this
 * file. To be run when `previousRelease.ts` names another commit. Needs Debian's `postgresql-client-15`.
 */
import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import pg from 'pg'
import type * as Http from '../../src/http/index.ts'
import type * as Library from '../../src/index.ts'
import { ensureAlone } from '../matrix/install.ts'
import { pinned } from '../matrix/versions.ts'
import { clientProgram, SERVER_15 } from '../server/postgres15.ts'
import { startPostgres } from '../server/postgres.ts'
import {
  ABANDONED,
  BLOCKED,
  BYTES,
  CONSUMER,
  DELIVERED_EACH,
  DUMP_FILE,
  dumpedRequest,
  HALF_DELIVERED,
  HEADERS,
  LOCKED,
  PREFIX_OFF,
  RELEASED,
  SCOPE,
  TOPIC,
} from './dumped.ts'
import { previousRelease } from './previousRelease.ts'
import { KEEP_ANSWERS } from './sideBySide.sql.ts'

const previous = previousRelease()
if (previous === undefined) throw new Error('There is no previous release to make a dump of.')
const { Lockstep } = (await import(previous.entry.href)) as typeof Library
const { fetchHandler, idempotent } = (await import(new URL('http/index.js', previous.entry).href)) as typeof Http
for (const server of pinned('pg')) if (server.alias === SERVER_15) ensureAlone(server)

await using server = await startPostgres({ binariesFrom: SERVER_15 })
const pool = new pg.Pool({ connectionString: server.url(), max: 6 })
const lockstep = new Lockstep(pool)
const byRows = new Lockstep(pool, { strategy: 'table' })
try {
  const { to } = await lockstep.migrate()
  await lockstep.transaction({ lock: LOCKED }, async () => undefined)
  await byRows.transaction({ lock: LOCKED }, async () => undefined)
  await lockstep.rollout.set(PREFIX_OFF, 'off')
  await (await lockstep.leases.acquire(RELEASED, { metadata: { from: 'the previous release' } })).release()
  await lockstep.leases.acquire(ABANDONED, { ttlMs: 1000 })
  const answer = fetchHandler(idempotent<Request>(lockstep, { scope: () => SCOPE }), () =>
    Response.json({ answered: 'by the previous release' }, { status: 201 }),
  )
  const { status } = await answer(dumpedRequest())
  if (status !== 201) throw new Error(`The request was answered with ${status}.`)
  await pool.query(KEEP_ANSWERS)
  await enqueueAndDeliver()
  await lockstep.close()
  await byRows.close()
  const { stdout } = await promisify(execFile)(
    clientProgram('pg_dump'),
    ['--inserts', '--no-owner', '--no-privileges', '--schema=lockstep', `--dbname=${server.url()}`],
    { maxBuffer: 64 * 1024 * 1024 },
  )
  await writeFile(DUMP_FILE, `-- Schema version ${to}, made by the library of ${previous.commit}.\n${plain(stdout)}`)
} finally {
  await pool.end()
}

async function enqueueAndDeliver(): Promise<void> {
  const keys = [...HALF_DELIVERED, BLOCKED]
  const enqueue = (n: number): Promise<unknown> =>
    lockstep.transaction({}, (tx) =>
      tx.enqueueMany(
        keys.map((key) => ({ topic: TOPIC, key, payload: n === 1 ? BYTES : { number: n }, headers: HEADERS })),
      ),
    )
  for (let n = 1; n <= DELIVERED_EACH; n++) await enqueue(n)
  const stopping = new AbortController()
  const inbox = lockstep.inbox.consumer(CONSUMER)
  const delivered: string[] = []
  const running = lockstep.outbox
    .dispatcher({
      shards: 2,
      retainMs: false,
      async sink(events) {
        for (const event of events) {
          if (event.key === BLOCKED) continue
          await inbox.handle(event, {}, async () => undefined)
          delivered.push(event.id)
        }
        return events.map(({ key }) => (key === BLOCKED ? { refused: 'refused for the dump' } : 'sent'))
      },
    })
    .run({ signal: stopping.signal })
  const isBlocked = async (): Promise<boolean> =>
    (await lockstep.outbox.parked()).some(({ state }) => state === 'blocked')
  const wanted = HALF_DELIVERED.length * DELIVERED_EACH
  while (delivered.length < wanted || !(await isBlocked())) await sleep(20)
  stopping.abort()
  await running
  await enqueue(DELIVERED_EACH + 1)
}

/** Without what only psql understands, and without comments. */
function plain(dump: string): string {
  const lines = dump
    .split('\n')
    .filter((line) => !/^(\\|--( |$)|SET (?!check_function_bodies)|SELECT pg_catalog\.set_config)/.test(line))
  return `${lines
    .join('\n')
    .replaceAll(/\n{3,}/g, '\n\n')
    .trim()}\n`
}
