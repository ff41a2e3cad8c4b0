import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { READ_BELOW_XMIN, XMIN_NOW } from './naiveReader.sql.ts'

const LOOK_EVERY_MS = 5

/** A reader that stops before the oldest transaction that runs. Reads until it is stopped. */
export async function readNaively(url: string, take: (mark: string) => void): Promise<() => Promise<void>> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const { rows } = await client.query<{ xid: string }>(XMIN_NOW)
  const stop = new AbortController()
  const reading = readUntil(client, stop.signal, rows[0]?.xid as string, take)
  return async () => {
    stop.abort()
    await reading
    await client.end()
  }
}

async function readUntil(
  client: pg.Client,
  stop: AbortSignal,
  xid: string,
  take: (mark: string) => void,
): Promise<void> {
  let cursor = { xid, id: '0' }
  while (!stop.aborted) {
    const { rows } = await client.query<{ xid: string; id: string; mark: string }>(READ_BELOW_XMIN, [
      cursor.xid,
      cursor.id,
    ])
    for (const { mark } of rows) take(mark)
    cursor = rows.at(-1) ?? cursor
    if (rows.length === 0) await sleep(LOOK_EVERY_MS)
  }
}
