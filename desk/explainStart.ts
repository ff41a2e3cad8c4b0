import { PortTakenError } from './choosePort.ts'

/** Why there is no desk, in words. */
export function explainStart(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  if (process.env['LOCKSTEP_DEBUG'] === '1') return error.stack ?? error.message
  if (error instanceof PortTakenError) return error.message
  const { code } = error as NodeJS.ErrnoException
  if (code === 'ECONNREFUSED' || code === 'LOCKSTEP_CONNECTION_LOST')
    return 'No server answers at DATABASE_URL. Start it, or unset DATABASE_URL to use our own.'
  if (error.message.includes('lock file "postmaster.pid" already exists')) {
    return 'Another start was faster and uses the data directory now. Stop that first, or give another with --data DIR.'
  }
  if (error.message.includes('could not create any TCP/IP sockets')) {
    return 'The port of PostgreSQL is in use. Give another with --pg-port N, or none to get a free one.'
  }
  return `${error.message || error.name}${code === undefined ? '' : ` (${code})`}\nLOCKSTEP_DEBUG=1 shows where it happened.`
}
