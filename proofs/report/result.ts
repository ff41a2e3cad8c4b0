import type { Goal } from '../../tools/judge/report.ts'
import { ENDS, FORMS, type Form, type History, type Violation } from '../history.ts'
import { cutOut } from './cutOut.ts'

/** More of them would show nothing new, and a broken build has thousands. */
const MOST_VIOLATIONS = 50

/** A violation with what was going on around it: enough to draw it. */
export interface Caught {
  readonly violation: Violation
  readonly round: number
  /** The cut-out of the round's history. */
  readonly history: History
}

/** What one form of a scenario did in all its rounds. */
export interface FormResult {
  rounds: number
  done: number
  failed: number
  /** With an unknown outcome, or killed before it received an answer. */
  unknown: number
  violations: number
  first?: Caught
}

export interface ScenarioResult {
  /** As `--scenario` names it. */
  readonly name: string
  readonly title: string
  /** What each form does, in a sentence. */
  readonly does: Readonly<Record<Form, string>>
  readonly forms: Readonly<Record<Form, FormResult>>
}

/** The outcome of a cluster whose primary was replaced. */
export interface ClusterResult {
  readonly replication: 'synchronous' | 'asynchronous'
  /** Timelines that began during the run: so many primaries were promoted. */
  readonly promotions: number
  /** Of these, the ones on which Lockstep began a new server epoch. */
  readonly noticed: number
  /** Violations that the loss of acknowledged commits explains; 0 where none can be lost. */
  readonly lost: number
  /** Streams of the outbox in which one number was two events, those that the inbox reported, and those that it did not. */
  readonly diverged: number
  readonly reported: number
  readonly silent: number
}

export interface FaultResult {
  /** As `--fault` names it. */
  readonly fault: string
  /** What is done to whom, in a sentence. */
  readonly does: string
  injected: number
  /** Operations that were in flight where it struck. */
  struck: number
  /** Why it was not possible here. */
  readonly skipped?: string
}

/** A whole run. */
export interface RunResult {
  readonly seed: number
  /** ISO 8601. */
  readonly startedAt: string
  readonly minutes: number
  /** `PostgreSQL 18.1, embedded` */
  readonly server: string
  readonly machine: string
  /** What to type to have the same schedule again. */
  readonly replay: string
  readonly scenarios: readonly ScenarioResult[]
  readonly faults: readonly FaultResult[]
  readonly goals: readonly Goal[]
  readonly cluster?: ClusterResult
  /** The first ones; the forms count them all. */
  readonly violations: readonly (Violation & { readonly form: Form; readonly round: number })[]
}

export function emptyForms(): Record<Form, FormResult> {
  const [naive, lockstep] = FORMS.map(() => ({ rounds: 0, done: 0, failed: 0, unknown: 0, violations: 0 }))
  return { naive: naive as FormResult, lockstep: lockstep as FormResult }
}

export function operationsOf({ done, failed, unknown }: FormResult): number {
  return done + failed + unknown
}

/** What is looked at in one form alone has nothing to say about the other. */
export function wasTried(form: FormResult): boolean {
  return operationsOf(form) + form.violations > 0
}

/** Counts a round of one scenario, and keeps the picture of the first violation. */
export function addRound(
  form: FormResult,
  round: number,
  history: History,
  violations: readonly Violation[],
  into: (Violation & { form: Form; round: number })[],
): void {
  form.rounds += 1
  const ends = new Map<string, 'done' | 'failed' | 'unknown'>()
  for (const { op, what } of history.entries) {
    if (op === '') continue
    if (ENDS.has(what)) ends.set(op, what as 'done' | 'failed' | 'unknown')
    else if (what === 'asked' && !ends.has(op)) ends.set(op, 'unknown')
  }
  for (const end of ends.values()) form[end] += 1
  form.violations += violations.length
  const [first] = violations
  if (first !== undefined) form.first ??= { violation: first, round, history: cutOut(history, first) }
  const room = Math.max(0, MOST_VIOLATIONS - into.length)
  into.push(...violations.slice(0, room).map((each) => ({ ...each, form: history.form, round })))
}
