import { checkOptions, type OptionNames } from '../checkOptions.ts'
import type { ConsoleOptions } from '../console/index.ts'
import { InvalidOptionError, type LockstepOptions, type Pool } from '../index.ts'

/** What `LockstepModule.forRoot()` takes, and what the factory of `forRootAsync()` returns. */
export interface LockstepModuleOptions {
  /** The pool of your driver: `new pg.Pool()`, or `postgres()` of postgres.js. */
  readonly pool: Pool
  /** Options of `new Lockstep()`. */
  readonly lockstep?: LockstepOptions
  /** Whether to call `lockstep.migrate()` before the application starts. Default false. */
  readonly migrate?: boolean
  /** Whether the module ends the pool, after it has closed the Lockstep. Default false: it is yours. */
  readonly endPool?: boolean
  /** Mounts the console under the path of `base`, which is required here. A global prefix of the application does not apply to it. */
  readonly console?: ConsoleOptions & { readonly base: string }
}

const LOCKSTEP_MODULE_OPTIONS: OptionNames<LockstepModuleOptions> = {
  pool: 'never undefined',
  lockstep: true,
  migrate: true,
  endPool: true,
  console: true,
}

export function checkModuleOptions(options: LockstepModuleOptions): LockstepModuleOptions {
  checkOptions('LockstepModule.forRoot()', options, LOCKSTEP_MODULE_OPTIONS)
  const { console: site } = options
  const base: unknown = site?.base
  if (site !== undefined && (typeof base !== 'string' || base === '/')) {
    throw new InvalidOptionError('`console` of LockstepModule has no `base`.', {
      advice: "Use a path of its own, such as '/console'.",
    })
  }
  return options
}
