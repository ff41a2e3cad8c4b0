/** One thing that the doctor looked at. */
export interface Finding {
  readonly name: string
  /** `fail`: a promise cannot be kept here. `warn`: it is kept, at a price or with a risk that can be avoided. */
  readonly level: 'ok' | 'warn' | 'fail'
  readonly found: string
  /** What to do; empty where all is well. */
  readonly advice: string
}
