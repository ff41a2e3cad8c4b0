import type { Goal, ResultRow } from '../../tools/judge/report.ts'

/** What an attack found. */
export interface Findings {
  readonly results: readonly ResultRow[]
  readonly goals: readonly Goal[]
}

/** Tells people how far it is. */
export type ReportProgress = (text: string) => void

/** A promise under attack. The same code runs at two sizes: full for `npm run attack`, small for `npm cit`. */
export interface Attack {
  readonly name: string
  /** One sentence for the list of attacks. */
  readonly about: string
  /** Needs a native build of minutes: only by its command, not in `npm cit`. */
  readonly needsBuild?: true
  run(size: 'full' | 'small', reportProgress: ReportProgress): Promise<Findings>
}

/** Makes an attack from its two sizes and the code that they share. */
export function attack<Size>(definition: {
  readonly name: string
  readonly about: string
  readonly full: Size
  readonly small: Size
  run(size: Size, reportProgress: ReportProgress): Promise<Findings>
}): Attack {
  const { name, about } = definition
  return { name, about, run: (size, reportProgress) => definition.run(definition[size], reportProgress) }
}
