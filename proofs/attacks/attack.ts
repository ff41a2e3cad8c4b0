import type { Goal, ResultRow } from '../../tools/judge/report.ts'
import type { Random } from '../seed.ts'
import { type Lab, openLab } from './lab.ts'

/** What an attack found. */
export interface Findings {
  readonly results: readonly ResultRow[]
  readonly goals: readonly Goal[]
}

/** Shows the progress on the terminal. */
export type ReportProgress = (text: string) => void

/** A promise under attack. The same code runs at two sizes: full for `npm run attack`, small for `npm cit`. */
export interface Attack {
  readonly name: string
  /** One sentence for the list of attacks. */
  readonly about: string
  /** Needs a native build of minutes: only by its command, not in `npm cit`. */
  readonly needsBuild?: true
  /** Needs a server that cannot be started here: only by its command, with `--against URL`. */
  readonly needsUrl?: true
  /** The scenario of the lab that it plays: `npm cit` plays all of them together. */
  readonly scenario?: string
  /** Names of what it consists of, each of which can be run alone. */
  readonly parts?: readonly string[]
  /** What is left to chance is drawn from `random`. Without `part`: all of them. `against` is the server that it needs. */
  run(
    size: 'full' | 'small',
    reportProgress: ReportProgress,
    random: Random,
    part?: string,
    against?: string,
  ): Promise<Findings>
}

interface Definition<Size> extends Pick<Attack, 'name' | 'about' | 'parts'> {
  readonly full: Size
  readonly small: Size
}

/** Makes an attack from its two sizes and the code that they share. */
export function attack<Size>(
  definition: Definition<Size> & {
    run(size: Size, reportProgress: ReportProgress, random: Random, part?: string): Promise<Findings>
  },
): Attack {
  const { name, about, parts } = definition
  const run: Attack['run'] = (size, reportProgress, random, part) =>
    definition.run(definition[size], reportProgress, random, part)
  return { name, about, run, ...(parts === undefined ? {} : { parts }) }
}

/** The same in a lab, which is closed afterwards. */
export function attackInLab<Size>(
  definition: Definition<Size> & {
    /** Of the server. */
    readonly settings?: Record<string, string>
    run(lab: Lab, size: Size, reportProgress: ReportProgress, random: Random): Promise<Findings>
  },
): Attack {
  return attack<Size>({
    ...definition,
    async run(size, reportProgress, random) {
      const lab = await openLab(definition.settings)
      try {
        return await definition.run(lab, size, reportProgress, random)
      } finally {
        await lab.close()
      }
    },
  })
}
