import { InvalidOptionError } from '../errors.ts'

/** The isolation levels that mean something in PostgreSQL; READ UNCOMMITTED is READ COMMITTED there. */
export type Isolation = 'read committed' | 'repeatable read' | 'serializable'

const ISOLATIONS: readonly Isolation[] = ['read committed', 'repeatable read', 'serializable']
/** Where each statement has a snapshot of its own. In PostgreSQL the two are the same; a joined transaction may be either. */
const READS_FRESH: ReadonlySet<string> = new Set(['read committed', 'read uncommitted'])

/** Whether each statement of a transaction with this isolation sees what was committed before it. */
export function readsFresh(isolation: Isolation): boolean {
  return READS_FRESH.has(isolation)
}

export function checkIsolation(isolation: unknown = 'read committed'): Isolation {
  if (ISOLATIONS.includes(isolation as Isolation)) return isolation as Isolation
  throw new InvalidOptionError(`Unknown isolation level ${String(isolation)}.`, {
    advice: `Use one of ${ISOLATIONS.join(', ')}.`,
  })
}
