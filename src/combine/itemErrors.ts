import {
  InvalidKeyError,
  InvalidOptionError,
  LockstepError,
  RowsLockedError,
  RowsMissingError,
  TransactionRolledBackError,
} from '../errors.ts'
import {
  codeOf,
  findCause,
  IN_FAILED_TRANSACTION,
  INSUFFICIENT_PRIVILEGE,
  isSqlState,
  meansConnectionLost,
  meansTryAgain,
  QUERY_CANCELED,
} from '../postgres/index.ts'

/** Classes of SQLSTATE that no single item brings about: they would strike each half again. */
const NOT_ITEM_CLASSES = new Set(['08', '0A', '25', '26', '28', '3D', '3F', '42', '53', '57', '58', 'F0', 'XX'])

/**
 * Exceptions: a row-level policy judges single rows; a statement may be cancelled because the batch is too large; and 25P02 says that
 * the error of an item was caught.
 */
const OF_ITEMS = new Set([INSUFFICIENT_PRIVILEGE, QUERY_CANCELED, IN_FAILED_TRANSACTION])

/** Errors of our own that an item can bring about: an id that no row can have, a row that is not there. */
const ITEM_ERRORS = [InvalidKeyError, InvalidOptionError, RowsMissingError, RowsLockedError]

/** Whether a batch failed for a reason that lies in its items, so that a part of it may succeed. */
export function isItemError(error: unknown): boolean {
  const own = findCause(error, (each) => each instanceof LockstepError)
  if (ITEM_ERRORS.some((kind) => own instanceof kind)) return true
  if (own instanceof TransactionRolledBackError) return own.cause !== undefined && isItemError(own.cause)
  if (own !== undefined) return false
  if (findCause(error, (cause) => meansTryAgain(cause) || meansConnectionLost(cause)) !== undefined) return false
  const code = codeOf(findCause(error, isSqlState))
  // Something that `run` itself threw.
  if (code === undefined) return true
  return OF_ITEMS.has(code) || !NOT_ITEM_CLASSES.has(code.slice(0, 2))
}
