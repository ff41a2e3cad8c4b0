/** One thing that the doctor looked at. */
export interface Finding {
  readonly name: string
  /** `fail`: Lockstep cannot keep a guarantee here. `warn`: it can, but with a cost or a risk that you can avoid. */
  readonly level: 'ok' | 'warn' | 'fail'
  readonly found: string
  /** What to do; empty where all is well. */
  readonly advice: string
}
