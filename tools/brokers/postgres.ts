import pg from 'pg'
import { EventRefusedError, Lockstep, type OutboxEvent } from 'pg-lockstep'
import { postgresSink } from 'pg-lockstep/postgres-sink'
import { messageHeaders, readMessage } from 'pg-lockstep/sinks'
import { startPostgres } from '../server/postgres.ts'
import type { Broker } from './broker.ts'
import { CREATE, INSERT, READ } from './postgresTable.sql.ts'

/** A column of the other database could say the same. */
const MAX_EVENT_BYTES = 2_000_000

/** Another PostgreSQL, its events in a table, through pg. */
export const postgres: Broker = {
  name: 'postgres',
  async run() {
    const server = await startPostgres()
    const address = `127.0.0.1:${server.port}`
    const pool = poolAt(address)
    await new Lockstep(pool).migrate()
    await pool.query(CREATE)
    return {
      address,
      kill: () => server.crash(),
      start: () => server.start(),
      async received(topic) {
        const { rows } = await pool.query<{ headers: string; body: Buffer }>(READ, [topic])
        return rows.map(({ headers, body }) => readMessage(JSON.parse(headers) as Record<string, string>, body))
      },
      async stop() {
        await pool.end()
        await server.stop('immediate')
      },
    }
  },
  async connect(address, { timeoutMs }) {
    const pool = poolAt(address)
    const lockstep = new Lockstep(pool, { silenceMs: timeoutMs })
    const sink = postgresSink({
      lockstep,
      consumer: 'received',
      timeoutMs,
      handlesTombstones: true,
      async handleMany(tx, events) {
        for (const { body } of events) {
          if (body.length > MAX_EVENT_BYTES)
            throw new EventRefusedError(`its ${body.length} bytes are more than ${MAX_EVENT_BYTES}`)
        }
        await tx.queryAtCommit(INSERT, rowsOf(events))
      },
    })
    return {
      sink,
      async end() {
        await sink.close?.()
        await lockstep.close()
        await pool.end()
      },
    }
  },
  async byHand(address) {
    const pool = poolAt(address)
    return {
      send: async (events) => void (await pool.query(INSERT, rowsOf(events))),
      end: () => pool.end(),
    }
  },
}

function poolAt(address: string): pg.Pool {
  const pool = new pg.Pool({ connectionString: `postgres://postgres@${address}/postgres`, max: 8 })
  // What an idle connection says that the server ended is said again by the next query.
  return pool.on('error', () => undefined)
}

function rowsOf(events: readonly OutboxEvent[]): unknown[] {
  return [
    events.map(({ topic }) => topic),
    events.map(({ key }) => key),
    events.map(({ seq }) => String(seq)),
    events.map((event) => JSON.stringify(messageHeaders(event))),
    events.map(({ body }) => body.toString('hex')),
  ]
}
