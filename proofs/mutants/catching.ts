import { stripVTControlCharacters } from 'node:util'
import type { Goal } from '../../tools/judge/report.ts'
import { type Ended, runCommand } from './command.ts'
import type { Catcher, CatchingAttack, CatchingLab, CatchingTest } from './mutant.ts'

/** What came of a try to find a mutant out. */
export interface Verdict {
  /** What was said of it; undefined where nothing was found. */
  readonly caught: string | undefined
  /** Why there is no verdict at all: the command has failed in another way. Then it is not caught. */
  readonly failure: string | undefined
}

/** How long the lab continues, the first time. What is not found then is looked for twice as long: a busy machine has fewer races in a minute. */
const LAB_MINUTES = 0.15
/** A tick is recorded every thousand events. */
const TRACE_MINUTES = 0.4
const WITHIN_MS = 180_000

/** The command that has to find it out. */
export function commandOf(catcher: Catcher, attempt = 1): readonly string[] {
  if (catcher.by === 'attack') return ['proofs/attacks/main.ts', catcher.attack, '--small']
  if (catcher.by === 'test') return ['node_modules/vitest/vitest.mjs', 'run', catcher.file, '-t', escaped(catcher.test)]
  const fault = catcher.fault === undefined ? [] : ['--fault', catcher.fault]
  const trace = catcher.trace === true ? ['--trace', 'trace.jsonl'] : []
  const rest = [
    '--form',
    'lockstep',
    '--minutes',
    String((catcher.trace === true ? TRACE_MINUTES : LAB_MINUTES) * 2 ** (attempt - 1)),
    ...trace,
  ]
  return ['src/cli/main.ts', 'prove', '--scenario', catcher.scenario, ...fault, ...rest]
}

/** Runs it in a folder and reads what it says. */
export async function tryToCatch(folder: string, catcher: Catcher, attempt: number): Promise<Verdict> {
  const args =
    catcher.by === 'test'
      ? [...commandOf(catcher, attempt), '--reporter', 'json', '--bail', '1']
      : [
          '--import',
          'tsx',
          ...commandOf(catcher, attempt),
          '--json',
          ...(catcher.by === 'lab' ? ['--seed', String(attempt)] : []),
        ]
  const ended = await runCommand(folder, args, WITHIN_MS)
  if (ended.tooLong) return failed(`no end within ${WITHIN_MS / 1000} s`)
  const report = lastObject(ended.out)
  if (report === undefined) return failed(lastServerError(ended))
  if (catcher.by === 'attack') return readAttack(catcher, report)
  if (catcher.by === 'test') return readTest(catcher, report)
  return readLab(catcher, report)
}

interface AttackReport {
  readonly goals: readonly Goal[]
}

/** A control's name; in the attack on the edges, behind that of its edge. */
const CONTROL = /(?:^|: )control\b/

/** A control shows that the attack can fail: that it does not is nothing that a mutant brings about. */
export function readAttack({ goal }: CatchingAttack, { goals }: Partial<AttackReport>): Verdict {
  if (goals === undefined) return failed('a report without goals')
  const lost = goals.filter(({ name, holds }) => !holds && !CONTROL.test(name))
  const found = lost.find(({ name }) => name.startsWith(goal) || name.endsWith(goal))
  if (found !== undefined) return caught(`${found.name}: ${found.value}, not ${found.goal}`)
  return notCaught(lost.map(({ name }) => name))
}

interface LabReport {
  readonly violations: readonly { readonly invariant: string; readonly scenario: string; readonly text: string }[]
}

export function readLab({ invariant, trace }: CatchingLab, { violations }: Partial<LabReport>): Verdict {
  if (violations === undefined) return failed('a report without violations')
  const found = violations.filter(
    (each) => each.invariant === invariant || (trace === true && each.invariant.startsWith(invariant)),
  )
  const [first] = found
  if (first !== undefined) return caught(`${first.invariant}, ${found.length}x: ${first.text}`)
  return notCaught([...new Set(violations.map((each) => each.invariant))])
}

interface TestReport {
  readonly testResults: readonly {
    readonly assertionResults: readonly {
      readonly fullName: string
      readonly status: string
      readonly failureMessages?: string[]
    }[]
  }[]
}

export function readTest({ test }: CatchingTest, { testResults }: Partial<TestReport>): Verdict {
  const all = testResults?.flatMap(({ assertionResults }) => assertionResults) ?? []
  const meant = all.filter(({ fullName }) => fullName.includes(test))
  const found = meant.find(({ status }) => status === 'failed')
  if (found !== undefined) return caught(firstLine(found.failureMessages?.[0] ?? 'it failed'))
  if (meant.some(({ status }) => status === 'passed')) return notCaught([])
  return failed('the test was not run')
}

function caught(what: string): Verdict {
  return { caught: what, failure: undefined }
}

function failed(failure: string): Verdict {
  return { caught: undefined, failure }
}

/** Something else that was noticed is reported: it may be the better catcher. */
function notCaught(others: readonly string[]): Verdict {
  return { caught: undefined, failure: others.length === 0 ? undefined : `only noticed: ${others.join('; ')}` }
}

function lastObject(out: string): object | undefined {
  const line = out.trimEnd().split('\n').at(-1) ?? ''
  try {
    const value: unknown = JSON.parse(line)
    return typeof value === 'object' && value !== null ? value : undefined
  } catch {
    return undefined
  }
}

function lastServerError({ code, out, err }: Ended): string {
  const lines = stripVTControlCharacters(`${out}\n${err}`).split('\n')
  const error = lines.findLast((line) => /error/i.test(line)) ?? lines.findLast((line) => line.trim() !== '') ?? ''
  return `it ended with ${code}: ${error.trim().slice(0, 200)}`
}

function firstLine(text: string): string {
  return stripVTControlCharacters(text).split('\n')[0]?.slice(0, 200) ?? ''
}

function escaped(text: string): string {
  return text.replaceAll(/[$()*+.?[\\\]^{|}]/g, String.raw`\$&`)
}
