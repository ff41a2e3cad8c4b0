import { goal, type Goal } from '../../tools/judge/report.ts'
import { replay } from '../trace/replay.ts'
import type { Configuration } from './configurations.ts'
import { traceFromSpin } from './fromSpin.ts'
import { randomRun, search } from './spin.ts'

/**
 * Compares the rules for traces of prove with the model: they accept what the model does, in random runs, and reject the run in which a mutant of
 * the model breaks a property.
 */
export async function compareReplay(
  { name, model, defines, mutants }: Configuration,
  seeds: number,
  limits: { readonly withinMs: number; readonly memoryMb: number },
): Promise<Goal[]> {
  let [runs, rejected] = [0, 0]
  for (let seed = 1; seed <= seeds; seed++) {
    const steps = await randomRun(model, defines, seed, limits.withinMs)
    if (steps === undefined) continue
    runs++
    if (replay(traceFromSpin(steps)).length > 0) rejected++
  }
  const accepted: string[] = []
  for (const mutant of mutants) {
    const found = await search(model, { ...defines, ...mutant.defines, [mutant.name]: true, REPLAYED: true }, limits)
    if (found.broken === undefined || replay(traceFromSpin(found.steps)).length === 0) accepted.push(mutant.name)
  }
  return [
    goal(`${name}: random runs replayed`, runs, '=', seeds),
    goal(`${name}: random runs that the rules for traces reject`, rejected, '=', 0),
    ...(mutants.length === 0
      ? []
      : [
          goal(`${name}: runs of mutants that the rules for traces accept${listed(accepted)}`, accepted.length, '=', 0),
        ]),
  ]
}

function listed(names: readonly string[]): string {
  return names.length === 0 ? '' : ` (${names.join(', ')})`
}
