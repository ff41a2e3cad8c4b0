import { goal } from '../../../tools/judge/report.ts'
import type { Form, Violation } from '../../history.ts'
import { addRound, emptyForms, type RunResult, type ScenarioResult } from '../result.ts'
import { lateHolder, lostUpdate, type Telling } from './stories.ts'

/** A run in which both naive forms were caught; and, on request, ours too. */
export function sampleRun(isOursBroken = false): RunResult {
  const violations: (Violation & { form: Form; round: number })[] = []
  const scenarioOf = (
    name: string,
    title: string,
    { history, violation }: Telling,
    isBroken: boolean,
  ): ScenarioResult => {
    const forms = emptyForms()
    addRound(forms.naive, 1, history, [violation], violations)
    addRound(forms.lockstep, 2, { ...history, form: 'lockstep' }, isBroken ? [violation] : [], violations)
    return { name, title, does: { naive: `${title} without a lock.`, lockstep: `${title} under a lock.` }, forms }
  }
  return {
    seed: 4711,
    startedAt: '2030-01-01T00:00:00.000Z',
    minutes: 3,
    server: 'PostgreSQL 18.1, embedded',
    machine: '8 x Some Processor, 16 GiB',
    replay: 'npx lockstep prove --seed 4711',
    scenarios: [
      scenarioOf('wallet', 'Wallet increments', lostUpdate(), false),
      scenarioOf('lease', 'A lease', lateHolder(), isOursBroken),
    ],
    faults: [
      { fault: 'kill', does: 'A worker is killed.', injected: 12, struck: 40 },
      { fault: 'pooler', does: 'The pooler goes away.', injected: 0, struck: 0, skipped: 'no pgbouncer here' },
    ],
    goals: [goal('violations of lockstep forms', isOursBroken ? 1 : 0, '=', 0)],
    violations,
  }
}
