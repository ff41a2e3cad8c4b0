import type { StatementResult } from '../postgres/index.ts'
import type { PlannedPart } from '../transactions/index.ts'
import { findOtherHolders, markShadows, otherHoldersIn } from './rollout.sql.ts'
import type { Shadow } from './shadow.ts'
import type { ShadowWatch } from './shadowWatch.ts'

/** The keys of a call that are only observed. */
export class ObservedKeys implements PlannedPart<void> {
  readonly opening: NonNullable<PlannedPart['opening']>
  readonly #shadows: readonly Shadow[]
  readonly #watch: ShadowWatch

  constructor(shadows: readonly Shadow[], watch: ShadowWatch) {
    this.opening = { before: findOtherHolders(shadows), columns: `${markShadows(shadows)} AS marks` }
    this.#shadows = shadows
    this.#watch = watch
  }

  accept(results: readonly StatementResult[]): void {
    const { places, began } = otherHoldersIn(results)
    for (const place of places) {
      const shadow = this.#shadows[place]
      if (shadow !== undefined) this.#watch.follow(shadow, began)
    }
  }
}
