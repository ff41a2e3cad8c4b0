import { TransactionControl } from '../errors.ts'

/** Giving the connection back is Lockstep's to do. */
const NOT_THE_CALLERS = new Set<string | symbol>(['release', 'end'])

/**
 * The driver's client as the caller sees it: the same object, except that nothing can be called on it once the transaction has
 * ended. A query that came later would run in whatever transaction the connection serves by then.
 */
export function guardClient(client: unknown, assertOpen: () => void): unknown {
  return new Proxy(client as object, {
    apply(target, _self, args: unknown[]) {
      assertOpen()
      return Reflect.apply(target as (...given: unknown[]) => unknown, undefined, args)
    },
    get(target, property) {
      const value: unknown = Reflect.get(target, property, target)
      if (typeof value !== 'function') return value
      return (...args: unknown[]): unknown => {
        if (NOT_THE_CALLERS.has(property)) {
          throw new TransactionControl(`tx.client.${String(property)}() was called.`, {
            advice: 'Return from the function: Lockstep gives the connection back.',
          })
        }
        assertOpen()
        return Reflect.apply(value, target, args) as unknown
      }
    },
  })
}
