/** The names of the databases, by their place. */
export const DATABASES = ['north', 'south'] as const

export function nameOfAccount(n: number): string {
  return `account-${n}`
}

/** What the accounts of a database hold that have not moved away. */
export const HELD = 'SELECT COALESCE(sum(balance), 0)::int AS held FROM accounts WHERE moved_to IS NULL'

/** Money that stands on an account that has moved away, where nothing would find it. */
export const STRANDED = 'SELECT COALESCE(sum(balance), 0)::int AS stranded FROM accounts WHERE moved_to IS NOT NULL'

/** Each booking of each transfer. */
export const ENTRIES = 'SELECT transfer, account, amount FROM entries'

/** What the control does with an event, without the inbox. */
export const CREDIT = 'UPDATE accounts SET balance = balance + $2 WHERE id = $1 AND moved_to IS NULL'
