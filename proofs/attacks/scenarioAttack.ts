import { describeMachine, type ResultRow } from '../../tools/judge/report.ts'
import { faults } from '../faults/index.ts'
import { FORMS, type Checker, type Form } from '../history.ts'
import { operationsOf } from '../report/result.ts'
import { prove } from '../run.ts'
import { scenarios } from '../scenarios/index.ts'
import type { Random } from '../seed.ts'
import type { Attack, Findings, ReportProgress } from './attack.ts'

/** How a scenario of the lab is played. */
export interface ScenarioRun {
  /** As `--fault` names them. */
  readonly faults: readonly string[]
  readonly forms?: readonly Form[]
  readonly minutes: number
  /** Operations at a time in each of four processes; the scenario's own number by default. */
  readonly lanes?: number
  /** Beside the scenario's own. */
  readonly checkers?: readonly Checker[]
  /** In place of the scenario's own. */
  readonly naiveBreaks?: readonly string[]
}

/** Plays a scenario: the naive form is the control, which must be caught, and ours must not be. */
export async function playScenario(
  name: string,
  { faults: kinds, forms = FORMS, checkers = [], naiveBreaks, ...rest }: ScenarioRun,
  reportProgress: ReportProgress,
  random: Random,
): Promise<Findings> {
  const chosen = scenarios
    .filter((scenario) => scenario.name === name)
    .map((scenario) => ({
      ...scenario,
      checkers: [...scenario.checkers, ...checkers],
      ...(naiveBreaks === undefined ? {} : { naiveBreaks }),
    }))
  const result = await prove(
    {
      ...rest,
      scenarios: chosen,
      faults: faults.filter((fault) => kinds.includes(fault.name)),
      forms,
      seed: random.below(2 ** 32),
      machine: describeMachine(),
      replay: '',
    },
    ({ form, round, doing }) => reportProgress(`${name}: round ${round}, ${form}: ${doing}`),
  )
  for (const { form, invariant, text } of result.violations)
    if (form === 'lockstep') reportProgress(`${name}: ${invariant}: ${text}`)
  const results = result.scenarios.flatMap(({ name: scenario, forms: all }) =>
    forms.map((form): ResultRow => {
      const { rounds, done, violations } = all[form]
      return { scenario, form, rounds, operations: operationsOf(all[form]), done, violations }
    }),
  )
  // A control's name says so: no mutant is found out by it.
  const goals = result.goals.map((each) =>
    each.name.includes(': naive form') ? { ...each, name: `control, ${each.name}` } : each,
  )
  return { results, goals }
}

/** An attack that is a scenario of the lab, at its size and under its faults. */
export function scenarioAttack(
  definition: Pick<Attack, 'name' | 'about'> & Omit<ScenarioRun, 'forms'> & { readonly scenario: string },
): Attack {
  const { name, about, scenario, ...run } = definition
  return {
    name,
    about,
    scenario,
    run: (size, reportProgress, random) =>
      playScenario(scenario, size === 'full' ? run : { ...run, minutes: SMALL_MINUTES }, reportProgress, random),
  }
}

const SMALL_MINUTES = 0.5
