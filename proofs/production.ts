import { isIP } from 'node:net'
import type pg from 'pg'
import { SIGNS } from './production.sql.ts'

const MANY_ROWS = 100_000
const LARGE_BYTES = 1024 ** 3

interface Signs {
  readonly sessions: number
  readonly standbys: number
  readonly rows: number
  readonly bytes: number
  readonly archiving: string
}

/** The server looks as if people depended on it. */
export class LooksLikeProductionError extends Error {
  readonly code = 'LOOKS_LIKE_PRODUCTION'

  constructor(signs: readonly string[]) {
    super(
      `This server looks like one that people depend on: ${signs.join('; ')}. The lab loads it heavily and ends its own ` +
        'sessions; it works in a schema of its own and touches nothing else.',
    )
  }
}

/** Throws `LooksLikeProductionError` where anything speaks for it. */
export async function refuseProduction(admin: pg.Pool, url: string): Promise<void> {
  const { rows } = await admin.query<Signs>(SIGNS)
  const signs = [...placeSigns(url), ...serverSigns(rows[0] as Signs)]
  if (signs.length > 0) throw new LooksLikeProductionError(signs)
}

export function placeSigns(url: string): string[] {
  const { hostname } = new URL(url)
  const host = hostname.replaceAll(/[[\]]/g, '')
  const own = host === '' || host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'))
  return own ? [] : [`it is not on this machine (${host})`]
}

export function serverSigns({ sessions, standbys, rows, bytes, archiving }: Signs): string[] {
  return [
    ...(sessions > 0 ? [`${sessions} other ${sessions === 1 ? 'session is' : 'sessions are'} connected`] : []),
    ...(standbys > 0 ? [`${standbys} ${standbys === 1 ? 'standby follows' : 'standbys follow'} it`] : []),
    ...(rows > MANY_ROWS ? [`its tables have about ${Math.round(rows)} rows`] : []),
    ...(bytes > LARGE_BYTES ? [`the database has ${Math.round(bytes / 2 ** 20)} MiB`] : []),
    ...(archiving === 'off' ? [] : [`archive_mode is ${archiving}`]),
  ]
}
