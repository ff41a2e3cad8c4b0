import type { Operation } from './operations.ts'

/** How checkers speak: short lists, and times that can be compared with the picture. */

/** As many examples as a person looks at. */
const HANDFUL = 5

export function handful<Of>(all: readonly Of[]): Of[] {
  return all.slice(0, HANDFUL)
}

/** `a, b and 7 more`. */
export function listed(all: readonly string[]): string {
  const more = all.length - HANDFUL
  if (more > 0) return `${handful(all).join(', ')} and ${more} more`
  return all.length < 2 ? all.join('') : `${all.slice(0, -1).join(', ')} and ${all.at(-1)}`
}

/** A moment, in milliseconds since the run began. */
export function ms(at: number): string {
  return `${Math.round(at) / 1000} ms`
}

/** `1 row`, `2 rows`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}

/** `w2 (op 17)`: an operation and whose it was. */
export function named(operation: Pick<Operation, 'by' | 'id'>): string {
  return `${operation.by} (${operation.id})`
}

/** The same for an id of which only the world outside or the database may know. */
export function nameOf(operations: ReadonlyMap<string, Operation>, id: string): string {
  const operation = operations.get(id)
  if (operation !== undefined) return named(operation)
  return id === '' ? 'an unknown writer' : id
}
