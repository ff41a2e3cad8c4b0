import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, type LeaseHeldError } from '../errors.ts'
import type { Key } from '../locks/index.ts'
import { type Lease, LEASE_OPTIONS, type LeaseOptions } from '../leases/index.ts'
import { hasCode } from './errorCode.ts'
import type { Answer, Guard, HttpLockstep } from './guard.ts'
import { problem } from './problem.ts'
import { unavailable } from './unavailable.ts'

/** What `exclusive()` takes. */
export interface ExclusiveOptions<Request> {
  /** The key of the request. Only one request at a time can work on it. */
  readonly key: (request: Request) => Key | Promise<Key>
  /**
   * The options of the lease. With `waitMs` the second request waits before it gets 409; by default it does not. A function sets them for
   * each request, for example `waitMs` or `metadata`.
   */
  readonly lease?: LeaseOptions | ((request: Request) => LeaseOptions | Promise<LeaseOptions>)
  /** Whether the 409 contains the holder, and since when it holds the lease. The holder can be a host name, so the default is false. */
  readonly revealHolder?: boolean
  /** What the 409 says about the work in progress. If it fails, the 409 has no details. */
  readonly describeBusy?: (key: Key, request: Request) => BusyDetails | Promise<BusyDetails>
}

/** Details of a 409. */
export interface BusyDetails {
  /** When it is worth trying again. Default: when the lease ends if its holder does not renew it. */
  readonly retryAfterMs?: number
  /** Further members of the problem document. They do not replace its own. */
  readonly members?: Readonly<Record<string, unknown>>
}

const EXCLUSIVE_OPTIONS: OptionNames<ExclusiveOptions<never>> = {
  key: true,
  lease: true,
  revealHolder: true,
  describeBusy: true,
}

/**
 * One request at a time works on a key, in all processes; the next one receives 409 at once. The handler gets the lease.
 *
 * @example
 * const oneAtATime = exclusive(lockstep, { key: (request: Request) => key`Instance:${request.params.id}` })
 * app.post('/instances/:id/process/next', expressHandler(oneAtATime, async (request, response, lease) => { … }))
 */
export function exclusive<Request, Client = unknown>(
  lockstep: Pick<HttpLockstep<Client>, 'lease'>,
  options: ExclusiveOptions<Request>,
): Guard<Request, Lease<Client>> {
  checkOptions('exclusive()', options, EXCLUSIVE_OPTIONS)
  const { lease: given } = options
  if (given !== undefined && typeof given !== 'function') checkOptions('`lease` of exclusive()', given, LEASE_OPTIONS)
  if (typeof options.key !== 'function') {
    throw new InvalidOptionError('exclusive() was given no `key`.', {
      advice: 'Call exclusive(lockstep, { key: (request) => key`Instance:${…}` }).',
    })
  }
  return {
    wholeUpTo: undefined,
    async handle({ request }, work) {
      const key = await options.key(request)
      const wanted = typeof given === 'function' ? await given(request) : (given ?? {})
      let lease: Lease<Client> | undefined
      try {
        await lockstep.lease(key, wanted, (held) => work((lease = held)))
        return 'own'
      } catch (error) {
        if (lease === undefined && hasCode(error, 'LOCKSTEP_LEASE_HELD'))
          return busy(error, options.revealHolder === true, await detailsOf(options, key, request))
        const refusal = lease === undefined ? unavailable(error) : undefined
        if (refusal !== undefined) return refusal
        // Whatever was thrown after the loss: it comes of it.
        if (lease?.signal.aborted === true) return lost('Another request may work on it by now.')
        throw error
      }
    },
  }
}

/** The conflict is certain, whatever can be said about it: a description that fails must not make it an error of the server. */
async function detailsOf<Request>(
  { describeBusy }: ExclusiveOptions<Request>,
  key: Key,
  request: Request,
): Promise<BusyDetails> {
  try {
    return (await describeBusy?.(key, request)) ?? {}
  } catch {
    return {}
  }
}

function busy({ holder, since, leftMs }: LeaseHeldError, reveal: boolean, details: BusyDetails): Answer {
  const detail = 'Another request works on this just now. Try again later.'
  const { retryAfterMs = leftMs, members } = details
  return problem('busy', detail, { retryAfterMs, members, ...(reveal && { holder, since }) })
}

export function lost(detail: string): Answer {
  return problem('lost', `The lease under which this request worked was lost. ${detail}`, { retryAfterMs: 1000 })
}
