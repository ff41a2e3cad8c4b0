import { type Form, FORMS } from '../history.ts'
import { type FaultResult, type FormResult, operationsOf, type ScenarioResult, wasTried } from './result.ts'
import { columnsOf, cutTo, type Paint, plain } from './paint.ts'

/** How a run stands at a moment. */
export interface RunState {
  readonly elapsedMs: number
  readonly totalMs: number
  /** What is continuing: `round 7, lockstep: w2 killed`. */
  readonly doing: string
  readonly scenarios: readonly ScenarioResult[]
  readonly faults: readonly FaultResult[]
}

/** A narrower terminal has no room for the names of invariants. */
const NARROW = 76
const MOST_FAULT_LINES = 3
const INDENT = '  '

/** The live picture, in lines that fit. */
export function frame(state: RunState, columns: number, rows: number, paint: Paint): string[] {
  const below = [...faultLines(state.faults, columns, paint), '', ...progressLines(state, columns, paint)]
  const table = [...scenarioTable(state.scenarios, columns, paint), '']
  // What has scrolled away cannot be written over: the table gives way, the bar stays.
  const room = Math.max(0, rows - 1 - below.length)
  const shown = table.length <= room ? table : table.slice(0, room)
  return [...shown, ...below].slice(-Math.max(1, rows - 1)).map((line) => cutTo(line, columns - 1))
}

/** One line per scenario: operations and violations of both forms, and what was broken. */
export function scenarioTable(scenarios: readonly ScenarioResult[], columns: number, paint: Paint = plain): string[] {
  const isNarrow = columns < NARROW
  const width = Math.max(8, ...scenarios.map(({ name }) => columnsOf(name)))
  const cells = (form: (each: Form) => string): string => FORMS.map((each) => form(each).padStart(9)).join('')
  const pad = ' '.repeat(width)
  const head = [
    `${INDENT}${pad}${'operations'.padStart(18)}   ${'violations'.padStart(18)}`,
    `${INDENT}${'scenario'.padEnd(width)}${cells((each) => each)}   ${cells((each) => each)}${isNarrow ? '' : '   broken'}`,
  ].map((line) => paint('dim', line))
  return [
    ...head,
    ...scenarios.map(({ name, forms }) => {
      const operations = cells((each) => (operationsOf(forms[each]) === 0 ? '·' : count(operationsOf(forms[each]))))
      const violations = FORMS.map((each) => violationCell(each, forms[each], paint)).join('')
      const broken = isNarrow ? '' : `   ${brokenCell(forms, paint)}`
      return `${INDENT}${name.padEnd(width)}${operations}   ${violations}${broken}`.trimEnd()
    }),
  ]
}

/** The naive form is there to be caught; ours never may be. */
function violationCell(form: Form, result: FormResult, paint: Paint): string {
  const { violations } = result
  if (result.rounds === 0 || (form === 'naive' && !wasTried(result))) return '·'.padStart(9)
  const text = count(violations).padStart(9)
  if (form === 'lockstep') return violations > 0 ? paint('red', text) : paint('green', text)
  return violations > 0 ? paint('yellow', text) : text
}

function brokenCell(forms: ScenarioResult['forms'], paint: Paint): string {
  const ours = forms.lockstep.first
  if (ours !== undefined) return paint('red', `LOCKSTEP: ${ours.violation.invariant}`)
  return forms.naive.first?.violation.invariant ?? ''
}

function faultLines(faults: readonly FaultResult[], columns: number, paint: Paint): string[] {
  const words = faults
    .filter(({ injected }) => injected > 0)
    .map(({ fault, injected }) => `${fault} ${count(injected)}`)
  const label = `${INDENT}faults   `
  if (words.length === 0) return [`${paint('dim', label)}none yet`]
  const lines = flow(words, Math.max(12, columns - 1 - label.length))
  const shown = lines.slice(0, MOST_FAULT_LINES)
  if (lines.length > shown.length) shown[shown.length - 1] += ' …'
  return shown.map((line, index) => (index === 0 ? paint('dim', label) : ' '.repeat(label.length)) + line)
}

function progressLines({ elapsedMs, totalMs, doing }: RunState, columns: number, paint: Paint): string[] {
  const left = `${clock(totalMs - elapsedMs)} left`
  const width = Math.max(5, Math.min(40, columns - left.length - 8))
  const part = totalMs <= 0 ? 1 : Math.min(1, Math.max(0, elapsedMs / totalMs))
  const full = Math.round(part * width)
  const bar = `${paint('green', '█'.repeat(full))}${paint('dim', '░'.repeat(width - full))}`
  return [`${INDENT}${bar}  ${left}`, `${INDENT}${oneLine(doing)}`]
}

/** For a log: how it stands, in one line. */
export function logLine({ elapsedMs, totalMs, doing, scenarios, faults }: RunState): string {
  const sums = FORMS.map((form) => {
    const all = scenarios.map(({ forms }) => forms[form])
    const operations = all.reduce((sum, each) => sum + operationsOf(each), 0)
    const violations = all.reduce((sum, each) => sum + each.violations, 0)
    const broken = all.filter((each) => each.violations > 0).length
    const where = broken === 0 ? '' : ` in ${broken} of ${all.filter(wasTried).length} scenarios`
    return `${form} ${counted(operations, 'operation')}, ${counted(violations, 'violation')}${where}`
  })
  const injected = faults.reduce((sum, fault) => sum + fault.injected, 0)
  const time = `${clock(elapsedMs)} of ${clock(totalMs)}`
  return `${time}: ${sums.join('; ')}; ${counted(injected, 'fault')}; ${oneLine(doing)}`
}

/** Words with dots between, in lines. */
function flow(words: readonly string[], width: number): string[] {
  const lines: string[] = []
  for (const word of words) {
    const longer = `${lines.at(-1)} · ${word}`
    if (lines.length > 0 && columnsOf(longer) <= width - 2) lines[lines.length - 1] = longer
    else lines.push(word)
  }
  return lines
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim()
}

/** `12,345`, and from a million on `1.23M`. */
function count(value: number): string {
  return value < 1_000_000 ? exact(value) : `${(value / 1_000_000).toPrecision(3)}M`
}

/** `1 fault`, `2 faults` */
function counted(value: number, noun: string): string {
  return `${exact(value)} ${noun}${value === 1 ? '' : 's'}`
}

function exact(value: number): string {
  return value.toLocaleString('en-US')
}

/** `1:05` */
function clock(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1000))
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`
}
