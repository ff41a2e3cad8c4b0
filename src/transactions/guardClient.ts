import { TransactionControl } from '../errors.ts'

/** Giving the connection back is Lockstep's to do. */
const NOT_THE_CALLERS = new Set<string | symbol>(['release', 'end'])

/** A query of postgres.js: it is sent when somebody waits for it, which may be long after it was made. */
interface LazyQuery {
  handler: (query: LazyQuery) => unknown
  readonly reject: (error: unknown) => void
}

/**
 * The driver's client as the caller sees it: the same object, except that nothing can be called on it once the transaction has
 * ended. A query that came later would run in whatever transaction the connection serves by then.
 */
export function guardClient(client: unknown, assertOpen: () => void): unknown {
  return new Proxy(client as object, {
    apply(target, _self, args: unknown[]) {
      assertOpen()
      return guardLazy(Reflect.apply(target as (...given: unknown[]) => unknown, undefined, args), assertOpen)
    },
    get(target, property) {
      if (NOT_THE_CALLERS.has(property)) return () => refuse(property)
      const value: unknown = Reflect.get(target, property, target)
      if (typeof value !== 'function') return value
      return (...args: unknown[]): unknown => {
        assertOpen()
        return guardLazy(Reflect.apply(value, target, args), assertOpen)
      }
    },
  })
}

function refuse(property: string | symbol): never {
  throw new TransactionControl(`tx.client.${String(property)}() was called.`, {
    advice: 'Return from the function: Lockstep gives the connection back.',
  })
}

function guardLazy(made: unknown, assertOpen: () => void): unknown {
  if (!isLazyQuery(made)) return made
  const send = made.handler
  const guarded = (query: LazyQuery): unknown => {
    try {
      assertOpen()
    } catch (error) {
      return query.reject(error)
    }
    return send(query)
  }
  // postgres.js keeps its `debug` on the function.
  made.handler = Object.assign(guarded, send)
  return made
}

function isLazyQuery(made: unknown): made is LazyQuery {
  if (!(made instanceof Promise)) return false
  const { handler, reject } = made as Partial<LazyQuery>
  return typeof handler === 'function' && typeof reject === 'function'
}
