import { randomUUID } from 'node:crypto'
import { InvalidOptionError } from '../errors.ts'
import { checkKey, key, type Key } from '../locks/index.ts'
import type { Lease } from '../leases/index.ts'
import type { EventMap } from '../events/index.ts'
import type { Transaction } from '../transactions/index.ts'
import { hasCode } from './errorCode.ts'
import { lost } from './exclusive.ts'
import { fingerprintOf, lockKeyOf, MAX_DEPTH, type UnusableBody } from './fingerprint.ts'
import type { Answer, Draft, Guard, HttpLockstep, Incoming } from './guard.ts'
import {
  checkScope,
  type IdempotencyPlan,
  type IdempotentOptions,
  parseIdempotencyKey,
  planIdempotency,
  type PlainOptions,
  type TransactionalOptions,
} from './idempotencyOptions.ts'
import { problem } from './problem.ts'
import { type Entry, isReplay, running, StoredAnswers } from './storedAnswers.ts'
import { unavailable } from './unavailable.ts'

type Verdict = Answer | 'own'

/** Ends a transaction with nothing written, and says what to answer. */
class RollbackWithAnswerError extends Error {
  readonly verdict: Verdict

  constructor(verdict: Verdict) {
    super('The transaction is rolled back, as intended.')
    this.verdict = verdict
  }
}

/**
 * A request that comes again with the same `Idempotency-Key` gets the first one's answer, byte by byte.
 *
 * The transactional form gives the handler a `tx`: what it does there and the stored answer are committed together, exactly once.
 * With `form: 'plain'` the handler does what it wants under a lease; after a crash between its effect and the storing a retry runs it
 * again.
 *
 * @example
 * // The user that was authenticated, never a header that the client fills in by itself.
 * const pay = idempotent(lockstep, { scope: (request: Request) => request.user.id })
 * app.post('/payments', expressHandler(pay, async (request, response, tx) => {
 *   await tx.query('INSERT INTO payments (amount) VALUES ($1)', [request.body.amount])
 *   response.status(201).json({ paid: true })
 * }))
 */
export function idempotent<Request, Client = unknown, Events extends object = EventMap>(
  lockstep: HttpLockstep<Client, Events>,
  options: PlainOptions<Request>,
): Guard<Request, Lease<Client>>
export function idempotent<Request, Client = unknown, Events extends object = EventMap>(
  lockstep: HttpLockstep<Client, Events>,
  options: TransactionalOptions<Request>,
): Guard<Request, Transaction<Client, Events>>
export function idempotent<Request>(
  lockstep: HttpLockstep,
  options: PlainOptions<Request> | TransactionalOptions<Request>,
): Guard<Request, Lease> | Guard<Request, Transaction> {
  const plan = planIdempotency(options)
  const answers = new StoredAnswers(lockstep, plan)
  return options.form === 'plain'
    ? withLink(plan, plainForm(lockstep, plan, answers, options))
    : withLink(plan, transactionalForm(lockstep, plan, answers, options))
}

/** Refusals link to the documentation; answers of the handler, also stored ones, do not. */
function withLink<Request, Given>({ link }: IdempotencyPlan, guard: Guard<Request, Given>): Guard<Request, Given> {
  if (link === undefined) return guard
  return {
    wholeUpTo: guard.wholeUpTo,
    async handle(incoming, work) {
      const verdict = await guard.handle(incoming, work)
      if (verdict === 'own' || isReplay(verdict)) return verdict
      return { ...verdict, headers: [...verdict.headers, ['link', link]] }
    },
  }
}

function plainForm<Request>(
  lockstep: HttpLockstep,
  plan: IdempotencyPlan,
  answers: StoredAnswers,
  options: PlainOptions<Request>,
): Guard<Request, Lease> {
  // A lease for every request would push the ends of all others out of the history.
  const lease = { history: false, ...options.lease, waitMs: 0 }
  return {
    wholeUpTo: plan.maxBodyBytes,
    async handle(incoming, work) {
      const entry = await entryOf(incoming, plan, options)
      if (isAnswer(entry)) return entry
      let held: Lease | undefined
      let looked = false
      try {
        // Without a key there is nothing to wait for, but the handler gets its lease all the same.
        return await lockstep.lease(entry?.lockKey ?? key`Idempotency:${randomUUID()}`, lease, async (given) => {
          held = given
          const found = entry && (await given.transaction(tried(entry), (tx) => answers.look(tx, entry, true)))
          if (found !== undefined) return found
          looked = true
          const draft = await work(given)
          const answer = await draft.whole()
          if (answer === undefined)
            return responseTooLarge('The effect of the request happened, and a retry repeats it.')
          if (entry === undefined || answer.status >= 500) return 'own'
          if (!(await given.transaction({}, (tx) => answers.keep(tx, entry, answer))))
            return lost('Another answer is stored.')
          answers.noteKept()
          return 'own'
        })
      } catch (error) {
        if (held?.signal.aborted === true) return lost('A retry can repeat the effect of this request.')
        if (looked) throw error
        return refusalOf(error, answers, entry, false)
      }
    },
  }
}

function transactionalForm<Request>(
  lockstep: HttpLockstep,
  plan: IdempotencyPlan,
  answers: StoredAnswers,
  options: TransactionalOptions<Request>,
): Guard<Request, Transaction> {
  return {
    wholeUpTo: plan.maxBodyBytes,
    async handle(incoming, work) {
      const entry = await entryOf(incoming, plan, options)
      if (isAnswer(entry)) return entry
      const locks = await locksOf(incoming.request, options)
      let waiting = false
      let thrown: unknown
      try {
        // Others' locks may be waited for, a request of the same key not: it is asked for alone first.
        if (entry !== undefined && locks.length > 0) {
          const { waitMs } = options.transaction ?? {}
          const asking = { ...tried(entry), ...(waitMs !== undefined && { waitMs }) }
          const found = await lockstep.transaction(asking, (tx) => answers.look(tx, entry, false))
          if (found !== undefined) return found
        }
        waiting = locks.length > 0
        const wanted =
          entry === undefined
            ? { ...options.transaction, lock: locks }
            : { ...options.transaction, noWait: !waiting, lock: [entry.lockKey, ...locks] }
        const verdict = await lockstep.transaction(wanted, async (tx) => {
          try {
            const found = entry && (await answers.look(tx, entry, false))
            return found ?? (await runIn(tx, work, answers, entry))
          } catch (error) {
            thrown = error
            throw error
          }
        })
        if (entry !== undefined && verdict === 'own') answers.noteKept()
        return verdict
      } catch (error) {
        if (error instanceof RollbackWithAnswerError) return error.verdict
        // Not only the first attempt may find the lock taken: after a conflict another request may be quicker.
        if (error === thrown) throw error
        return refusalOf(error, answers, entry, waiting)
      }
    },
  }
}

/** The handler, and its answer beside what it did. Nothing of both is left where it failed or cannot be stored. */
async function runIn(
  tx: Transaction,
  work: (given: Transaction) => Promise<Draft>,
  answers: StoredAnswers,
  entry: Entry | undefined,
): Promise<Verdict> {
  const draft = await work(tx)
  const answer = await draft.whole()
  if (answer === undefined) throw new RollbackWithAnswerError(responseTooLarge('Nothing was done.'))
  if (answer.status >= 500) throw new RollbackWithAnswerError('own')
  // Another request can have been quicker only if a rollout left the lock out.
  if (entry !== undefined && !(await answers.keep(tx, entry, answer))) throw new RollbackWithAnswerError(running(1000))
  return 'own'
}

/** Undefined: there is no key, and none is needed. */
async function entryOf<Request>(
  incoming: Incoming<Request>,
  plan: IdempotencyPlan,
  options: IdempotentOptions<Request>,
): Promise<Entry | Answer | undefined> {
  const header = incoming.header('idempotency-key')
  if (header === undefined) {
    if (!plan.required) return undefined
    return problem('key-missing', 'This request needs the header Idempotency-Key, with a value that a retry repeats.')
  }
  const idempotencyKey = parseIdempotencyKey(header)
  if (idempotencyKey === undefined) {
    return problem('key-malformed', 'Use 1 to 255 printable ASCII characters without spaces, or a quoted string.')
  }
  const scope = checkScope(await options.scope(incoming.request))
  const body = await bodyOf(incoming, plan, options)
  if (body === 'unread') return problem('request-unread', 'This server does not read its content type.')
  if (body === 'too large') return problem('request-too-large', `A body may have ${plan.maxBodyBytes} bytes here.`)
  if (body === 'too deep') return problem('request-too-deep', `JSON may have ${MAX_DEPTH} levels here.`)
  return {
    scope,
    key: idempotencyKey,
    fingerprint: fingerprintOf(incoming.method, incoming.path, body),
    lockKey: lockKeyOf(scope, idempotencyKey),
  }
}

async function bodyOf<Request>(
  incoming: Incoming<Request>,
  { maxBodyBytes }: IdempotencyPlan,
  options: IdempotentOptions<Request>,
): Promise<Uint8Array | UnusableBody> {
  if (options.body === undefined) return incoming.body(maxBodyBytes)
  const body = await options.body(incoming.request)
  const bytes = typeof body === 'string' ? Buffer.from(body) : body
  return bytes.byteLength > maxBodyBytes ? 'too large' : bytes
}

function isAnswer(entry: Entry | Answer | undefined): entry is Answer {
  return entry !== undefined && 'status' in entry
}

async function locksOf<Request>(request: Request, options: TransactionalOptions<Request>): Promise<readonly Key[]> {
  if (options.lock === undefined) return []
  const locks: unknown = await options.lock(request)
  if (typeof locks === 'string') return [checkKey(locks)]
  if (Array.isArray(locks)) return locks.map((each) => checkKey(each))
  throw new InvalidOptionError(`\`lock\` of idempotent() returned ${locks === null ? 'null' : typeof locks}.`, {
    advice: 'Return a key or a list of keys; [] where the request needs no lock.',
  })
}

/** Its lock is not waited for. A connection to ask through is. */
function tried(entry: Entry): { readonly lock: Key; readonly noWait: true } {
  return { lock: entry.lockKey, noWait: true }
}

/**
 * What to answer where the handler did not run: there was no connection to ask through; or the first request has ended by now, or still
 * runs; or, where it was waited for, another caller has a lock. Throws what is none of these.
 */
async function refusalOf(
  error: unknown,
  answers: StoredAnswers,
  entry: Entry | undefined,
  waited: boolean,
): Promise<Answer> {
  const away = unavailable(error)
  if (away !== undefined) return away
  if (!hasCode(error, 'LOCKSTEP_LOCK_TIMEOUT') && !hasCode(error, 'LOCKSTEP_LEASE_HELD')) throw error
  try {
    const found = entry && (await answers.lookPlainly(entry))
    if (found !== undefined) return found
  } catch (failure) {
    return refusalOf(failure, answers, undefined, waited)
  }
  if (!waited) return running(hasCode(error, 'LOCKSTEP_LEASE_HELD') ? error.leftMs : 1000)
  return problem('busy', 'Another request works on this just now. Try again later.', { retryAfterMs: 1000 })
}

function responseTooLarge(consequence: string): Answer {
  return problem('response-too-large', `It was not stored, and is not sent. ${consequence}`)
}
