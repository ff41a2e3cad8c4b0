import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import type { Pool } from '../postgres/index.ts'
import { openFrames } from './frames.ts'
import type { LockstepContext } from './lockstepContext.ts'

/** What `lockstep.pool()` takes. */
export interface PoolOptions {
  /** Confirms that you know the hazard: code belongs to the transaction in whose async context it runs. */
  readonly ambient: true
}

const POOL_OPTIONS: OptionNames<PoolOptions> = { ambient: true }

/** What a `pg` pool sends statements by. Everything else is the pool's own also inside a transaction. */
const SENDING: ReadonlySet<string | symbol> = new Set(['connect', 'query'])

/**
 * The pool for code that knows nothing else. Called in the async context of an open transaction of this Lockstep, it is the client of the
 * innermost one; elsewhere it is the pool.
 */
export function ambientPool<P extends Pool>(context: LockstepContext, pool: P, options: PoolOptions): P {
  checkOptions('pool()', options, POOL_OPTIONS)
  const { ambient }: { ambient?: unknown } = options
  if (ambient !== true) {
    throw new InvalidOptionError('pool() was called without `ambient: true`.', {
      advice:
        'Pass { ambient: true } if all code that uses the pool inside a transaction belongs to that transaction. A job queue that requests share does not.',
    })
  }
  const current = (): object => {
    const frame = openFrames().find((each) => each.context === context)
    return frame === undefined ? pool : (frame.tx.client as object)
  }
  if (typeof pool === 'function') {
    return new Proxy(pool, {
      apply: (_pool, _self, given: unknown[]) => Reflect.apply(current() as () => unknown, undefined, given) as unknown,
      get: (_pool, name) => Reflect.get(current(), name) as unknown,
    })
  }
  return new Proxy(pool, {
    get(_pool, name) {
      const source = SENDING.has(name) ? current() : pool
      const value = Reflect.get(source, name, source) as unknown
      return typeof value === 'function' ? (value.bind(source) as unknown) : value
    },
  })
}
