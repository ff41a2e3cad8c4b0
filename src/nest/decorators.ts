import { Inject, Injectable, type NestInterceptor, UseInterceptors } from '@nestjs/common'
import {
  exclusive,
  type ExclusiveOptions,
  type Guard,
  idempotent,
  type ParsedRequest,
  type PlainOptions,
  type TransactionalOptions,
} from '../http/index.ts'
import { Lockstep } from '../index.ts'
import { answerUnder } from './answerUnder.ts'
import { rememberGuarded } from './guardedMethods.ts'
import { locked, type LockedOptions } from './locked.ts'

/**
 * The handler runs in a transaction whose locks were granted before its first read. Nest answers after COMMIT. A lock that is not granted
 * within `waitMs` is 409.
 *
 * @example
 * @Post(':id/close')
 * @Locked({ lock: (request: Request) => key`Account:${request.params.id}` })
 * close(@Param('id') id: string, @Tx() tx: Transaction) {
 *   return this.accounts.close(tx, id)
 * }
 */
export function Locked<Request extends ParsedRequest>(options: LockedOptions<Request>): MethodDecorator {
  return guarded((lockstep) => locked(lockstep, options))
}

/**
 * One request at a time works on a key, in all processes; the next one gets 409 at once. As `exclusive()` of `pg-lockstep/http`.
 *
 * @example
 * @Post(':id/next')
 * @Exclusive({ key: (request: Request) => key`Instance:${request.params.id}` })
 * next(@Param('id') id: string, @HeldLease() lease: Lease) {
 *   return this.instances.next(id, lease)
 * }
 */
export function Exclusive<Request extends ParsedRequest>(options: ExclusiveOptions<Request>): MethodDecorator {
  return guarded((lockstep) => exclusive(lockstep, options))
}

/**
 * A request that comes again with the same `Idempotency-Key` gets the first one's answer, byte by byte. As `idempotent()` of
 * `pg-lockstep/http`.
 *
 * @example
 * @Post()
 * @Idempotent({ scope: (request: Request) => request.user.id })
 * pay(@Body() payment: PaymentDto, @Tx() tx: Transaction) {
 *   return this.payments.pay(tx, payment)
 * }
 */
export function Idempotent<Request extends ParsedRequest>(
  options: TransactionalOptions<Request> | PlainOptions<Request>,
): MethodDecorator {
  return guarded((lockstep): Guard<Request, unknown> =>
    options.form === 'plain' ? idempotent(lockstep, options) : idempotent(lockstep, options),
  )
}

/** An interceptor for one handler. Nest makes it when the application starts, with the application's Lockstep. */
export function guarded<Request extends ParsedRequest>(
  guardOf: (lockstep: Lockstep) => Guard<Request, unknown>,
): MethodDecorator {
  class GuardInterceptor implements NestInterceptor {
    readonly #guard: Guard<Request, unknown>

    constructor(lockstep: Lockstep) {
      this.#guard = guardOf(lockstep)
    }

    intercept(...[context, next]: Parameters<NestInterceptor['intercept']>): ReturnType<NestInterceptor['intercept']> {
      return answerUnder(this.#guard, context, next)
    }
  }
  // As calls: the syntax of decorators that Nest needs is not the one of the language.
  Injectable()(GuardInterceptor)
  Inject(Lockstep)(GuardInterceptor, undefined, 0)
  const intercept = UseInterceptors(GuardInterceptor)
  return (target, name, descriptor) => {
    rememberGuarded(target, name, GuardInterceptor)
    return intercept(target, name, descriptor)
  }
}
