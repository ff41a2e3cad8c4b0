import type { Around, InstalledParts, Part, PartHooks, PartSetup } from './part.ts'
import { OpenTransaction } from './transaction.ts'

/** Every part there is. `Options` are those of a Lockstep. */
export class PartRegistry<Options> {
  readonly #parts: readonly Part<PartHooks, Options>[]

  /** Adds the methods of the parts to every `tx`. So there is one registry in a process. */
  constructor(parts: readonly Part<PartHooks, Options>[]) {
    this.#parts = parts
    for (const { methods } of parts) {
      if (methods !== undefined)
        Object.defineProperties(OpenTransaction.prototype, Object.getOwnPropertyDescriptors(methods))
    }
  }

  /** Installs the parts in a Lockstep, in their order. What a part throws is thrown by the constructor of the Lockstep. */
  install(setup: PartSetup, options: Options): InstalledParts {
    const installed = new Map<object, PartHooks>()
    for (const part of this.#parts) installed.set(part, part.install?.(setup, options) ?? {})
    const hooks = [...installed.values()]
    return {
      planners: hooks.flatMap(({ planner }) => planner ?? []),
      around: hooks.flatMap(({ around }) => around ?? []).reduceRight<Around | undefined>(insideOf, undefined),
      explain: (error) => hooks.reduce((told, { explain }) => (explain === undefined ? told : explain(told)), error),
      leases: hooks.flatMap(({ leases }) => leases ?? [])[0],
      settled: () => Promise.all(hooks.flatMap((each) => each.settled?.() ?? [])),
      of: <Installed extends PartHooks>(part: Part<Installed, never>): Installed => installed.get(part) as Installed,
    }
  }
}

function insideOf(inner: Around | undefined, outer: Around): Around {
  if (inner === undefined) return outer
  return (plan, budget, run) => outer(plan, budget, (changed) => inner(changed, budget, run))
}
