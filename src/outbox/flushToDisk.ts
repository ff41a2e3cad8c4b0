import { FlushUnconfirmedError } from '../errors.ts'
import type { Connection } from '../postgres/index.ts'
import { flushToDisk, isReplicated } from './outbox.sql.ts'
import { resultRows } from './resultRows.ts'

/** The place in PostgreSQL that warns of a cancelled wait. Its text depends on the server's language, and its code is that of any warning. */
const WAIT_FOR_STANDBY = 'SyncRepWaitForLSN'

/**
 * Flushes everything visible to disk, and to the standby that commits wait for. Returns the history in which it did. Fails if the
 * wait for the standby was cancelled: PostgreSQL then answers COMMIT as usual, with a warning. If the driver does not report
 * to which statement a warning belongs, it asks the server how far its standbys are.
 */
export async function flush(connection: Connection, schema: string): Promise<string | null> {
  let cancelled = false
  const stopHearing = connection.hearing?.(({ routine }) => (cancelled ||= routine === WAIT_FOR_STANDBY))
  const results = await connection.script(flushToDisk(schema)).finally(stopHearing)
  const { life = null, place = null } = resultRows(results)[0] ?? {}
  if (cancelled) throw waitCancelled()
  if (stopHearing !== undefined || place === null) return life
  const replicated = resultRows(await connection.script(isReplicated(schema, place)))[0]?.['replicated']
  if (replicated === 'true') return life
  if (replicated === 'false') throw waitCancelled()
  throw new FlushUnconfirmedError('It cannot be seen whether the synchronous standby has what is to be sent.', {
    advice:
      'With postgres.js, GRANT pg_read_all_stats to the owner of the schema, or dispatch with pg. Until then nothing is sent, and nothing is lost.',
  })
}

function waitCancelled(): FlushUnconfirmedError {
  return new FlushUnconfirmedError('The wait for the synchronous standby was cancelled.', {
    advice: 'Nothing was sent, and it is tried again. Do not cancel statements with outbox_flush in them.',
  })
}
