import { createParamDecorator, type ExecutionContext } from '@nestjs/common'
import { InvalidOptionError, type Lease, type Transaction } from '../index.ts'

/** What the guard of a request gives its handler: a transaction, or a lease. */
const given = new WeakMap<object, unknown>()

/** Makes it known to the parameters of the handler. */
export function give(request: object, value: unknown): void {
  given.set(request, value)
}

export function takeBack(request: object): void {
  given.delete(request)
}

/** What was given to the handler of a request. */
export function givenTo(context: ExecutionContext): object | undefined {
  return given.get(context.switchToHttp().getRequest<object>()) as object | undefined
}

/**
 * The transaction of `@Locked()` or `@Idempotent()`, as a parameter of the handler.
 *
 * @example
 * @Post()
 * @Idempotent({ scope: (request: Request) => request.user.id })
 * async pay(@Body() payment: PaymentDto, @Tx() tx: Transaction) { … }
 */
export const Tx: () => ParameterDecorator = createParamDecorator((_data: unknown, context): Transaction => {
  const value = givenTo(context)
  if (value !== undefined && 'enqueue' in value) return value as Transaction
  throw nothingGiven('transaction', '@Locked() or @Idempotent()')
})

/**
 * The lease of `@Exclusive()`, or of `@Idempotent({ form: 'plain' })`, as a parameter of the handler.
 *
 * @example
 * @Post(':id/next')
 * @Exclusive({ key: (request: Request) => key`Instance:${request.params.id}` })
 * async next(@HeldLease() lease: Lease) { … }
 */
export const HeldLease: () => ParameterDecorator = createParamDecorator((_data: unknown, context): Lease => {
  const value = givenTo(context)
  if (value !== undefined && 'fence' in value) return value as Lease
  throw nothingGiven('lease', "@Exclusive() or @Idempotent({ form: 'plain' })")
})

function nothingGiven(what: string, decorators: string): InvalidOptionError {
  return new InvalidOptionError(`The handler has no ${what}.`, { advice: `Add ${decorators} to it.` })
}
