/** The part of `lockstep.guards` that returns what guards have counted. */
export interface GuardsToWatch {
  list(): Promise<
    readonly {
      readonly table: string
      readonly key: string
      readonly state: string
      readonly unlocked: number
      readonly listed: number
      readonly refused: number
    }[]
  >
}

/** What one guard has counted, by the value of the label `result`. */
export type GuardCounts = Awaited<ReturnType<GuardsToWatch['list']>>[number]

export const GUARD_RESULTS = ['unlocked', 'listed', 'refused'] as const

export const GUARD_WRITES = 'Writes that a guard found without the lock, found in the list of locks, or refused.'
export const GUARD_INACTIVE =
  'Whether a trigger of a guard is missing or disabled, or the guard does not fit its table.'
