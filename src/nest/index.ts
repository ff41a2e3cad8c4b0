/**
 * Nest: Lockstep as a module of NestJS 12, on Express and on Fastify.
 *
 * **The module.** `LockstepModule.forRoot()` makes one Lockstep for the application and provides it as the class `Lockstep`. It mounts the
 * console, and closes everything in order: the streams of the console and the dispatchers before the server waits for its requests, the
 * Lockstep after the last request, the pool after the Lockstep.
 *
 * **N1 The guard stands behind Nest's guards.** `@Locked`, `@Exclusive` and `@Idempotent` are interceptors, so a guard of Nest has verified the
 * user before a key or a scope is asked for. They use the guards of http/, and promise what those promise.
 *
 * **N2 An attempt is the handler with its pipes.** After a conflict Lockstep subscribes to the handler again: parameters are made
 * again, `@Tx()` gives the new transaction, and the response is as it was before the first attempt.
 *
 * **N3 `@Locked` and `@Exclusive`: the work ends, then Nest answers.** The value of the handler goes to the other interceptors after COMMIT, or
 * after the lease was released. A value that was rolled back is never seen.
 *
 * **N4 `@Idempotent`: Nest answers into a held response.** The stored answer has to be the one that is sent, so it has to be made by all
 * interceptors, the serializer and the platform. The value continues while the transaction is open, Nest answers, the answer is kept back
 * and stored, and after COMMIT it is sent. Two consequences: interceptors around the handler see the value before COMMIT; and a conflict that
 * PostgreSQL reports at COMMIT cannot run the handler again, because Nest has answered. It is 503 with `Retry-After`, and nothing was
 * done.
 *
 * **N5 An answer of the guard passes by Nest.** A replay and a refusal (409, 422, 503) are sent as they are. The interceptors around see the
 * value `undefined`, so that what they began ends; what they make of it is not sent. An interceptor that gives up on the handler
 * (`timeout()`) answers at once. The handler is still waited for: its transaction rolls back, or its lease is released, when it has ended.
 *
 * **N6 No decorator without effect.** Nest calls interceptors for handlers only. `guardedMethods.ts` looks at all controllers and providers before
 * the first request. If a decorated method is no handler, the application does not start. Nor does it with two decorators on one handler: the
 * order of two commits would be undefined.
 *
 * **Limits.** HTTP only.
 */
export { Exclusive, Idempotent, Locked } from './decorators.ts'
export { type DispatcherProvider, InjectedDispatcher, provideDispatcher } from './dispatcher.ts'
export type { LockedOptions } from './locked.ts'
export { LockstepModule } from './lockstepModule.ts'
export type { LockstepModuleOptions } from './lockstepModuleOptions.ts'
export { HeldLease, Tx } from './parameters.ts'
