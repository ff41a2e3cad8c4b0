import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { type Guard, type HttpLockstep, hasCode, problem, unavailable } from '../http/index.ts'
import { InvalidOptionError, type Key, type Transaction, type TransactionOptions } from '../index.ts'

/** What `@Locked()` takes. */
export interface LockedOptions<Request> extends Pick<TransactionOptions, 'isolation' | 'retry' | 'waitMs'> {
  /** The locks of the handler, granted before its first read. */
  readonly lock: (request: Request) => Key | readonly Key[] | Promise<Key | readonly Key[]>
}

const LOCKED_OPTIONS: OptionNames<LockedOptions<never>> = {
  lock: 'never undefined',
  isolation: true,
  retry: true,
  waitMs: true,
}

/** A transaction around the handler. A lock that is not granted within `waitMs` is 409. */
export function locked<Request>(
  lockstep: Pick<HttpLockstep, 'transaction'>,
  options: LockedOptions<Request>,
): Guard<Request, Transaction> {
  checkOptions('@Locked()', options, LOCKED_OPTIONS)
  const { lock, ...transaction } = options
  if (typeof lock !== 'function') {
    throw new InvalidOptionError('@Locked() was given no `lock`.', {
      advice: 'Use @Locked({ lock: (request) => key`Account:${request.params.id}` }).',
    })
  }
  return {
    wholeUpTo: undefined,
    async handle({ request }, work) {
      let runs = false
      try {
        await lockstep.transaction({ ...transaction, lock: await lock(request) }, (tx) => {
          runs = true
          return work(tx)
        })
        return 'own'
      } catch (error) {
        const refusal = runs ? undefined : refusalOf(error)
        if (refusal !== undefined) return refusal
        throw error
      }
    },
  }
}

function refusalOf(error: unknown): ReturnType<typeof unavailable> {
  const refusal = unavailable(error)
  if (refusal !== undefined || !hasCode(error, 'LOCKSTEP_LOCK_TIMEOUT')) return refusal
  return problem('busy', 'Another request works on this just now. Try again later.', { retryAfterMs: 1000 })
}
