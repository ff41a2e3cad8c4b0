/**
 * Http: requests that exclude each other, and requests that may come twice.
 *
 * **The promise.** `exclusive`: of all requests with one key, in any number of processes, one works; the next receives 409 at once.
 * `idempotent`: a request that comes again with its `Idempotency-Key` gets the first one's answer, and in the transactional form its
 * effect is there exactly once. One core for all frameworks: a *guard* decides whether the handler runs and with what; the handlers
 * for fetch, Hono, Express and Fastify only translate. No framework is imported.
 *
 * **H1 The handler's promise is its work.** When it ends, the lease is released or the answer committed, and only then is the answer
 * sent: a client that has read it can ask again at once. A client that disconnects ends nothing. Its work continues, keeps the lease, and
 * its answer is stored for the retry. A `finish` listener is called after the answer; a handler that waits for its own answer to be sent
 * would wait for itself, and is refused or let through (heldResponse.ts).
 *
 * **H2 Exclusive.** States: refused (409, with the lease's end as Retry-After) or working → answered, or lost. The lease is trusted as
 * of leases/. If it was lost before the work had ended, the answer is 503 and what the handler answered is thrown away, unless some of
 * it was streamed already.
 *
 * **H3 A key, a scope, a fingerprint.** An answer belongs to scope and key; the scope is a principal that the server has verified. The
 * fingerprint is over method, path and body: a key that comes with another one is refused with 422. A body decides neither how deep we
 * recurse nor how much we write: too large is 413, too deep is 400. Stored are the headers that describe the answer, say who may keep it, and
 * protect its reader, and those that were chosen; never cookies and credentials. A failure, 500 and above, is not stored: the key is free,
 * and a retry runs. Everything else is, 4xx too, until it expires.
 *
 * **H4 The transactional form.** One transaction: the key's lock, tried and not waited for; the look for a stored answer; the handler
 * with `tx`; the answer; COMMIT. The lock is the running state, and ends with its session: a crash leaves neither effect nor answer nor
 * reservation. An answer of 500 and above, or one too large, rolls back. After a conflict the handler runs again: each attempt begins with
 * the response as it was before the first, so an answer is one attempt's, whole. A connection is waited for, for as long as the request's
 * transaction may wait, and never while another one is held. The unique key of the table has the last word, also where a rollout leaves
 * the lock out.
 *
 * **H5 The plain form.** A lease on the key is the running state. Under it: the look, the handler, the answer in `lease.transaction`, so
 * that one who has lost the lease stores nothing. A crash after the effect and before the answer leaves the effect alone: the key stays
 * reserved until the lease ends, then a retry runs the handler again. Both forms may meet on one key, as in a rolling deploy: the
 * plain one looks under the lock, the transactional one looks at the lease.
 *
 * **Its border.** What is sent to the client may be lost; what the handler does outside the database is not undone by a rollback.
 */
export { type BusyDetails, exclusive, type ExclusiveOptions } from './exclusive.ts'
export { expressHandler } from './express.ts'
export { fastifyHandler, type FastifyLikeReply } from './fastify.ts'
export { fetchHandler } from './fetch.ts'
export type { Answer, Draft, Guard, Header, HttpLockstep, Incoming } from './guard.ts'
export { type HonoContext, honoHandler } from './hono.ts'
export { idempotent } from './idempotent.ts'
export type { IdempotentOptions, PlainOptions, TransactionalOptions } from './idempotencyOptions.ts'
export type { ParsedRequest } from './nodeRequest.ts'
export type { Problem, ProblemName } from './problem.ts'
/** @internal For frameworks that answer with code of their own after the handler: see nest. */
export { incomingOf } from './nodeRequest.ts'
/** @internal */
export { holdAnswer, isReply, mute, rawResponse, type ResponseOrReply } from './holdAnswer.ts'
/** @internal */
export type { HeldAnswer } from './heldAnswer.ts'
/** @internal */
export { hasCode } from './errorCode.ts'
/** @internal */
export { problem } from './problem.ts'
/** @internal */
export { unavailable } from './unavailable.ts'
