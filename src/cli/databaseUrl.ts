import { UsageError } from './usageError.ts'

export const NAME_ONE = 'Set DATABASE_URL, or write --url postgres://user@host:5432/name.'

/** Whether there is a database to ask. */
export function namesDatabase(given: string | undefined, env: NodeJS.ProcessEnv = process.env): boolean {
  return Boolean(given ?? env['DATABASE_URL'])
}

/** The database to work with. What is wrong with a URL is said without repeating it: it may hold a password. */
export function databaseUrl(given: string | undefined, env: NodeJS.ProcessEnv = process.env): string {
  const [url, source] = given === undefined ? [env['DATABASE_URL'], 'DATABASE_URL'] : [given, '--url']
  if (!url) throw new UsageError('No database was named.', NAME_ONE)
  if (/^postgres(?:ql)?:\/\//.test(url) && URL.canParse(url)) return url
  throw new UsageError(`${source} is not the URL of a PostgreSQL database.`, 'Write postgres://user@host:5432/name.')
}
