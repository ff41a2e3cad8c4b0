import pg from 'pg'

/**
 * A pool for a server of our own. It is closed before the server is, but on a busy machine a connection may still be on its way out when
 * the server stops: its error is ignored.
 */
export function openPool(url: string, max: number): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max })
  pool.on('error', () => undefined)
  return pool
}
