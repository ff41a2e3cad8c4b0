import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOption } from '../errors.ts'
import { checkKey, type Key } from '../locks/index.ts'
import { codeOf, findCause, UNIQUE_VIOLATION } from '../postgres/index.ts'
import type { Transaction, TransactionOptions } from '../transactions/index.ts'

/** What `lockstep.once()` takes beside the key. */
export interface OnceOptions<Value, Client = unknown> extends Pick<
  TransactionOptions,
  'isolation' | 'waitMs' | 'signal' | 'retry'
> {
  /** Looks for the thing; `undefined` or `null` where it is not there. */
  readonly find: (tx: Transaction<Client>) => Promise<Value | undefined | null>
  /** Creates it, in the same transaction. */
  readonly create: (tx: Transaction<Client>) => Promise<NonNullable<Value>>
}

const ONCE_OPTIONS: OptionNames<OnceOptions<never>> = {
  find: true,
  create: true,
  isolation: true,
  waitMs: true,
  signal: true,
  retry: true,
}

/** What there is now, and who made it. */
export interface OnceResult<Value> {
  readonly value: NonNullable<Value>
  /** True for the one caller whose `create` was committed. */
  readonly created: boolean
}

type Transact<Client> = <T>(options: TransactionOptions, fn: (tx: Transaction<Client>) => Promise<T>) => Promise<T>

/** Finds or creates under the key's lock. */
export async function once<Value, Client>(
  transact: Transact<Client>,
  key: Key,
  options: OnceOptions<Value, Client>,
): Promise<OnceResult<Value>> {
  checkKey(key)
  checkOptions('once()', options, ONCE_OPTIONS)
  const { find, create, ...rest } = options
  if (typeof find !== 'function' || typeof create !== 'function') {
    throw new InvalidOption('once() needs two functions, `find` and `create`.', {
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
    if (findCause(error, (cause) => codeOf(cause) === UNIQUE_VIOLATION) === undefined) throw error
    // Somebody who does not take the lock was quicker: what it made can be found now. If not, it was about something else.
    return look(() => {
      throw error
    })
  }
}
