import { UsageError } from './usageError.ts'

/** The database to work with. What is wrong with a URL is said without repeating it: it may hold a password. */
export function databaseUrl(given: string | undefined, env: NodeJS.ProcessEnv = process.env): string {
  const [url, source] = given === undefined ? [env['DATABASE_URL'], 'DATABASE_URL'] : [given, '--url']
  if (!url) {
    throw new UsageError('No database was named.', 'Set DATABASE_URL, or write --url postgres://user@host:5432/name.')
  }
  if (/^postgres(?:ql)?:\/\//.test(url) && URL.canParse(url)) return url
  throw new UsageError(`${source} is not the URL of a PostgreSQL database.`, 'Write postgres://user@host:5432/name.')
}
