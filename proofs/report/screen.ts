import { formatTable, verdictOf } from '../../tools/judge/report.ts'
import { columnsOf, type Output, paintFor } from './paint.ts'
import type { ClusterResult, RunResult } from './result.ts'
import { frame, logLine, type RunState, scenarioTable } from './runState.ts'

/** Redrawing more often than people can see would only take time from those who race. */
const FRAME_MS = 100
const LOG_MS = 10_000
/** Of our own violations; the report has more of them. */
const MOST_LINES = 10
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

const HIDE_CURSOR = '\u001B[?25l'
const SHOW_CURSOR = '\u001B[?25h'
/** Terminals that know it show a frame at once; the others pass over it. */
const BEGIN_FRAME = '\u001B[?2026h'
const END_FRAME = '\u001B[?2026l'
const CLEAR_LINE = '\u001B[K'
const CLEAR_BELOW = '\u001B[J'

interface Surroundings {
  readonly output?: Output
  readonly env?: NodeJS.ProcessEnv
  readonly now?: () => number
}

/** Shows how a run stands: on a terminal in place, elsewhere a line now and then. */
export class LiveScreen {
  readonly #output: Output
  readonly #env: NodeJS.ProcessEnv
  readonly #now: () => number
  readonly #isLive: boolean
  #drawn: readonly string[] = []
  #shownAt = -Infinity
  #broken = 0
  #hasEnded = false
  readonly #restore = (): void => this.#restoreCursor()
  readonly #interrupted = (signal: NodeJS.Signals): void => this.#passOn(signal)

  constructor({ output = process.stderr, env = process.env, now = () => performance.now() }: Surroundings = {}) {
    this.#output = output
    this.#env = env
    this.#now = now
    this.#isLive = output.isTTY === true && env['TERM'] !== 'dumb'
    if (!this.#isLive) return
    process.once('exit', this.#restore)
    for (const signal of SIGNALS) process.on(signal, this.#interrupted)
  }

  /** May be called as often as one likes. */
  show(state: RunState): void {
    if (this.#hasEnded) return
    const now = this.#now()
    const broken = state.scenarios.reduce((sum, { forms }) => sum + forms.lockstep.violations, 0)
    // What must never happen is reported at once.
    const isUrgent = broken > 0 && this.#broken === 0
    if (!isUrgent && now - this.#shownAt < (this.#isLive ? FRAME_MS : LOG_MS)) return
    this.#shownAt = now
    this.#broken = broken
    if (this.#isLive) this.#draw(state)
    else this.#output.write(`${logLine(state)}\n`)
  }

  /** Takes the picture away and gives the cursor back. What was found is for `finalTable`. */
  end(): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    if (!this.#isLive) return
    this.#output.write(`${this.#toTop(this.#output.columns || 80)}${CLEAR_BELOW}`)
    this.#restoreCursor()
    process.off('exit', this.#restore)
    for (const signal of SIGNALS) process.off(signal, this.#interrupted)
  }

  #draw(state: RunState): void {
    const columns = this.#output.columns || 80
    const lines = frame(state, columns, this.#output.rows || 24, paintFor(this.#output, this.#env))
    const body = lines.map((line) => `${line}${CLEAR_LINE}\n`).join('')
    this.#output.write(`${BEGIN_FRAME}${HIDE_CURSOR}${this.#toTop(columns)}${body}${CLEAR_BELOW}${END_FRAME}`)
    this.#drawn = lines
  }

  /** A terminal that was made narrower has broken the lines that stand there. */
  #toTop(columns: number): string {
    const height = this.#drawn.reduce((sum, line) => sum + Math.max(1, Math.ceil(columnsOf(line) / columns)), 0)
    return height === 0 ? '' : `\r\u001B[${height}A`
  }

  #restoreCursor(): void {
    this.#output.write(SHOW_CURSOR)
  }

  /** Another listener decides whether the program ends. If there is none, it ends as it would have without us. */
  #passOn(signal: NodeJS.Signals): void {
    if (process.listenerCount(signal) > 1) return
    this.#restoreCursor()
    process.off(signal, this.#interrupted)
    process.kill(process.pid, signal)
  }
}

const COLOR_OF = { holds: 'green', violated: 'red', inconclusive: 'yellow' } as const

/** What was found, for stdout. */
export function finalTable(result: RunResult, output: Output = process.stdout, env = process.env): string {
  const paint = paintFor(output, env)
  const columns = output.isTTY === true ? output.columns || 80 : 100
  const faults = result.faults.map(({ fault, injected, struck, skipped }) => ({
    fault,
    injected,
    'operations struck': struck,
    '': skipped === undefined ? '' : `skipped: ${skipped}`,
  }))
  const missed = result.goals.filter(({ holds }) => !holds)
  const verdict = verdictOf(result.goals)
  const goals = missed.map(({ name, value, goal, evidence }) => ({
    [verdict === 'inconclusive' ? 'not shown' : 'does not hold']: name,
    value,
    wanted: goal,
    ...(verdict === 'violated' && { '': evidence === true ? 'not shown' : '' }),
  }))
  const all = `${result.goals.length - missed.length} of ${result.goals.length} goals hold`
  const ours = result.violations.filter(({ form }) => form === 'lockstep').slice(0, MOST_LINES)
  return [
    `${result.server}; seed ${result.seed}, ${result.minutes} min; ${result.machine}`,
    ['', ...scenarioTable(result.scenarios, columns, paint)],
    faults.length === 0 ? [] : ['', indented(formatTable(faults))],
    result.cluster === undefined ? [] : ['', indented(clusterLines(result.cluster))],
    ['', `  ${paint(COLOR_OF[verdict], verdict === 'inconclusive' ? `Inconclusive: ${all}` : all)}`],
    goals.length === 0 ? [] : ['', indented(formatTable(goals))],
    ours.length === 0
      ? []
      : ['', ...ours.map(({ invariant, text }) => paint('red', `  LOCKSTEP ${invariant}: ${text}`))],
    ['', `To have the same schedule again: ${result.replay}`, ''],
  ]
    .flat()
    .join('\n')
}

function clusterLines({ replication, promotions, noticed, lost, diverged, reported, silent }: ClusterResult): string {
  return [
    `Cluster, ${replication} replication: ${promotions} primaries were replaced; Lockstep noticed ${noticed}.`,
    ...(replication === 'synchronous' ? [] : [`Losses of acknowledged commits that the checkers found: ${lost}.`]),
    `Streams in which one number was two events: ${diverged}; reported by the inbox: ${reported}; not reported: ${silent}.`,
  ].join('\n')
}

function indented(text: string): string {
  return text.replaceAll(/^/gm, '  ')
}
