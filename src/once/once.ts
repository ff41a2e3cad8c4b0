import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import { checkKey, type Key } from '../locks/index.ts'
import { codeOf, findCause, UNIQUE_VIOLATION } from '../postgres/index.ts'
import {
  NESTED_ONCE_OPTIONS,
  type NestedOnceOptions,
  type OnceResult,
  type Transaction,
  type TransactionOptions,
  type Transactor,
} from '../transactions/index.ts'

/** What `lockstep.once()` takes beside the key. */
export interface OnceOptions<Value, Client = unknown>
  extends NestedOnceOptions<Value, Client>, Pick<TransactionOptions, 'waitMs' | 'signal' | 'retry'> {}

const ONCE_OPTIONS: OptionNames<OnceOptions<never>> = {
  ...NESTED_ONCE_OPTIONS,
  waitMs: true,
  signal: true,
  retry: true,
}

type Transact<Client> = <T>(options: TransactionOptions, fn: (tx: Transaction<Client>) => Promise<T>) => Promise<T>

/** Called for a thing that a unique index refused to have twice. */
export type OnDuplicate = (key: Key, detail: string) => void

/** Finds or creates under the key's lock. */
export async function once<Value, Client>(
  transact: Transact<Client>,
  key: Key,
  options: OnceOptions<Value, Client>,
  onDuplicate?: OnDuplicate,
): Promise<OnceResult<Value>> {
  checkKey(key)
  checkOptions('once()', options, ONCE_OPTIONS)
  const { find, create, ...rest } = options
  if (typeof find !== 'function' || typeof create !== 'function') {
    throw new InvalidOptionError('once() needs two functions, `find` and `create`.', {
      advice: 'Call once(key, { find: async (tx) => …, create: async (tx) => … }).',
      keys: [key],
    })
  }
  const look = (otherwise: (tx: Transaction<Client>) => Promise<OnceResult<Value>>): Promise<OnceResult<Value>> =>
    transact({ ...rest, lock: key }, async (tx) => {
      const found = await find(tx)
      return found === undefined || found === null ? otherwise(tx) : { value: found, created: false }
    })
  try {
    return await look(async (tx) => ({ value: await create(tx), created: true }))
  } catch (error) {
    if (!isUniqueViolation(error)) throw error
    // A caller that does not take the lock was quicker: what it made can be found now. If not, it was about something else.
    const result = await look(() => {
      throw error
    })
    onDuplicate?.(key, 'a unique index refused what once() wanted to create')
    return result
  }
}

export function isUniqueViolation(error: unknown): boolean {
  return findCause(error, (cause) => codeOf(cause) === UNIQUE_VIOLATION) !== undefined
}

/** The same as a part of an open transaction, which must hold the key. */
export function onceWithin<Value>(
  tx: Transactor,
  key: Key,
  options: NestedOnceOptions<Value>,
): Promise<OnceResult<Value>> {
  return once((wanted, fn) => tx.transaction(wanted, fn), key, options)
}
