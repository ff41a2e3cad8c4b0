import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { afterEach, expect, test } from 'vitest'
import { evidence } from '../../tools/judge/report.ts'
import { page } from './page.ts'
import { columnsOf, cutTo, type Output, paintFor, plain } from './paint.ts'
import { emptyForms } from './result.ts'
import { finalTable, LiveScreen } from './screen.ts'
import { frame, type RunState } from './runState.ts'
import { sampleRun } from './testing/sampleRun.ts'

const manyFaults = Array.from({ length: 14 }, (_, index) => ({
  fault: `fault-${index}`,
  does: '',
  injected: 100 + index,
  struck: 9,
}))

function standing(isOursBroken = false): RunState {
  const { scenarios } = sampleRun(isOursBroken)
  return { elapsedMs: 60_000, totalMs: 180_000, doing: 'round 7, lockstep:\nw2 killed', scenarios, faults: manyFaults }
}

class Recorder implements Output {
  written = ''
  readonly isTTY: boolean
  columns = 80
  readonly rows = 24
  constructor(isTTY: boolean) {
    this.isTTY = isTTY
  }
  write(text: string): void {
    this.written += text
  }
}

let screen: LiveScreen | undefined
afterEach(() => screen?.end())

test.each([200, 80, 60, 40, 20])('fits lines to %i columns', (columns) => {
  for (const isOursBroken of [false, true]) {
    const lines = frame(standing(isOursBroken), columns, 24, paintFor(new Recorder(true), {}))
    expect(lines.filter((line) => columnsOf(line) >= columns || line.includes('\n'))).toEqual([])
  }
})

test('shows everything in 80 columns', () => {
  const text = frame(standing(), 80, 24, plain).join('\n')
  expect(text).toMatch(/wallet +2 +2 +1 +0 +mutual exclusion/)
  expect(text).toMatch(/█+░+ {2}2:00 left/)
  expect(text).toContain('round 7, lockstep: w2 killed')
  for (const { fault, injected } of manyFaults.slice(0, 9)) expect(text).toContain(`${fault} ${injected}`)
  expect(text).not.toContain('NaN')
})

test('shows no zeros for a form that has not run', () => {
  const { scenarios, ...rest } = standing()
  const none = scenarios.map((each) => ({ ...each, forms: { ...each.forms, lockstep: emptyForms().lockstep } }))
  expect(frame({ ...rest, scenarios: none }, 80, 24, plain).join('\n')).toMatch(/wallet +2 +· +1 +· /)
})

test('keeps the bar and drops the table in few rows', () => {
  for (const rows of [2, 4, 8, 24]) {
    const lines = frame(standing(), 80, rows, plain)
    expect(lines.length).toBeLessThan(Math.max(2, rows))
    expect(lines.at(-1)).toContain('w2 killed')
  }
})

test('redraws in place on a terminal, and restores the cursor', () => {
  const output = new Recorder(true)
  let now = 0
  screen = new LiveScreen({ output, env: {}, now: () => now })
  screen.show(standing())
  const lines = output.written.split('\n').length - 1
  expect(output.written).toContain('\u001B[?25l')
  screen.show(standing())
  const first = output.written.length
  expect(output.written.split('\n').length - 1).toBe(lines)
  now = 500
  screen.show(standing())
  expect(output.written.slice(first)).toContain(`\u001B[${lines}A`)
  screen.end()
  expect(output.written.endsWith('\u001B[J\u001B[?25h')).toBe(true)
})

test('overwrites lines that a narrower terminal has wrapped', () => {
  const output = new Recorder(true)
  let now = 0
  screen = new LiveScreen({ output, env: {}, now: () => now })
  screen.show(standing())
  const lines = output.written.split('\n').length - 1
  output.columns = 40
  now = 500
  output.written = ''
  screen.show(standing())
  // oxlint-disable-next-line no-control-regex -- the codes begin with a control character
  expect(Number(/\u001B\[(\d+)A/.exec(output.written)?.[1])).toBeGreaterThan(lines)
})

test('prints a plain line every ten seconds to a log, and at once for a violation of a Lockstep form', () => {
  const output = new Recorder(false)
  let now = 0
  screen = new LiveScreen({ output, env: {}, now: () => now })
  for (; now <= 20_000; now += 100) screen.show(standing())
  expect(output.written.split('\n')).toHaveLength(4)
  screen.show(standing(true))
  screen.show(standing(true))
  const lines = output.written.trimEnd().split('\n')
  expect(lines).toHaveLength(4)
  expect(lines[3]).toContain('lockstep 4 operations, 1 violation in 1 of 2 scenarios')
  expect(lines[0]).toMatch(
    /^1:00 of 3:00: naive 4 operations, 2 violations in 2 of 2 scenarios; lockstep 4 operations, 0 violations; /,
  )
  expect(output.written).not.toContain('\u001B')
})

test('uses colors only on terminals, and not with NO_COLOR', () => {
  expect(paintFor(new Recorder(true), {})('red', 'x')).toBe('\u001B[31mx\u001B[0m')
  expect(paintFor(new Recorder(true), { NO_COLOR: '1' })('red', 'x')).toBe('x')
  expect(paintFor(new Recorder(false), {})('red', 'x')).toBe('x')
  expect(paintFor(new Recorder(true), { TERM: 'dumb' })('red', 'x')).toBe('x')
})

test('resets the color of a cut text', () => {
  expect(cutTo('\u001B[31mabcdef\u001B[0m', 4)).toBe('\u001B[31mabc…\u001B[0m')
  expect(cutTo('\u001B[31mab\u001B[0mcdef', 4)).toBe('\u001B[31mab\u001B[0mc…')
  expect(cutTo('\u001B[31mabcd\u001B[0m', 4)).toBe('\u001B[31mabcd\u001B[0m')
})

test('prints scenarios, faults, goals and how to repeat the run in the final table', () => {
  const text = finalTable(sampleRun(true), new Recorder(false), {})
  expect(text).toMatch(/lease +2 +2 +1 +1 +LOCKSTEP: mutual exclusion/)
  expect(text).toMatch(/pooler +0 +0 +skipped: no pgbouncer here/)
  expect(text).toMatch(
    /0 of 1 goals hold\n\n {2}does not hold +value +wanted\n.*\n {2}violations of lockstep forms +1 += 0/,
  )
  expect(text).toContain('LOCKSTEP mutual exclusion: w1.1 and w2.1 held Report at once')
  expect(text).toContain('npx lockstep prove --seed 4711\n')
  expect(finalTable(sampleRun(), new Recorder(false), {})).not.toContain('LOCKSTEP')
})

test('says that a run is inconclusive if it has broken no promise and not shown enough', () => {
  const result = { ...sampleRun(), goals: [...sampleRun().goals, evidence('wallet: naive form caught', 0, '>=', 1)] }
  const text = finalTable(result, new Recorder(false), {})
  expect(text).toMatch(
    /Inconclusive: 1 of 2 goals hold\n\n {2}not shown +value +wanted\n.*\n {2}wallet: naive form caught +0 +>= 1/,
  )
  expect(page(result)).toContain('1 of 2 goals were not shown: the run is inconclusive.')
})

test.skipIf(process.platform === 'win32')(
  'restores the cursor on an interrupt, and ends by the signal',
  async () => {
    const program = fileURLToPath(new URL('testing/interrupted.ts', import.meta.url))
    const child = spawn(process.execPath, ['--import', 'tsx', program], { stdio: ['ignore', 'pipe', 'inherit'] })
    let written = ''
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      if (written === '') child.kill('SIGINT')
      written += text
    })
    const [, signal] = (await once(child, 'close')) as [number | null, string | null]
    expect(signal).toBe('SIGINT')
    expect(written.endsWith('\u001B[?25h')).toBe(true)
  },
  20_000,
)
