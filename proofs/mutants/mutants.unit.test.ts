import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { makeBrokenCopy, removeCopy, ROOT } from './brokenCopy.ts'
import { readAttack, readLab, readTest } from './catching.ts'
import { runCommand } from './command.ts'
import { LEAST_MUTANTS, mutants } from './index.ts'
import { type Patch, patched, patchesOf, PatchDoesNotFitError } from './mutant.ts'

const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8')
// Read, not imported: that would load all of them.
const attacks = read('proofs/attacks/index.ts')

test('has enough mutants with unique names', () => {
  expect(mutants.length).toBeGreaterThanOrEqual(LEAST_MUTANTS)
  expect(new Set(mutants.map(({ name }) => name)).size).toBe(mutants.length)
})

test.each(mutants)('applies $name to the current source, and changes it', (mutant) => {
  const files = new Map<string, string>()
  for (const patch of patchesOf(mutant)) {
    const text = files.get(patch.file) ?? read(patch.file)
    const changed = patched(mutant.name, text, patch)
    expect(changed).not.toBe(text)
    expect(changed).toContain(patch.replace)
    files.set(patch.file, changed)
  }
})

/** The text of a file of tests, with that of the suite that it runs. */
function withItsSuite(file: string): string {
  const text = read(file)
  const suite = /from '\.\/(\w+\.conformance\.ts)'/.exec(text)?.[1]
  return suite === undefined ? text : text + read(join(dirname(file), suite))
}

test.each(mutants)('has the attack, scenario or test that catches $name', ({ caughtBy }) => {
  if (caughtBy.by === 'attack') expect(attacks).toMatch(new RegExp(`^  '?${caughtBy.attack}'?[:,]`, 'm'))
  else if (caughtBy.by === 'test') expect(withItsSuite(caughtBy.file)).toContain(caughtBy.test)
  else expect(existsSync(join(ROOT, `proofs/scenarios/${caughtBy.scenario}.ts`))).toBe(true)
})

test('copies everything that an attack loads', { timeout: 60_000 }, async () => {
  const copy = await makeBrokenCopy(undefined)
  try {
    const { code, err } = await runCommand(copy, ['--import', 'tsx', 'proofs/attacks/main.ts', '--help'], 50_000)
    expect({ code, err }).toMatchObject({ code: 0, err: expect.stringContaining('order') as string })
  } finally {
    await removeCopy(copy)
  }
})

describe('a patch', () => {
  const patch: Patch = { file: 'planted.ts', find: 'a < b', replace: '$& a > b' }

  test('is applied as it is written', () => {
    expect(patched('planted', 'if (a < b) go()', patch)).toBe('if ($& a > b) go()')
  })

  test.each([
    ['is not found', 'if (a <= b) go()', 'planted: its text is not found in planted.ts'],
    ['is found twice', 'a < b || a < b', 'planted: its text is found 2 times in planted.ts'],
  ])('is rejected by name: %s', (_, text, told) => {
    expect(() => patched('planted', text, patch)).toThrow(told)
  })

  test('is rejected if it changes nothing', () => {
    expect(() => patched('planted', 'a < b', { ...patch, replace: 'a < b' })).toThrow(PatchDoesNotFitError)
  })
})

describe('a verdict', () => {
  const held = { value: 0, goal: '= 0', holds: true }
  const lost = { value: 3, goal: '= 0', holds: false }

  test('of an attack is a failed goal of those that are meant', () => {
    const catcher = { by: 'attack', attack: 'x', goal: 'deadlocks' } as const
    const verdict = (...goals: { name: string; value: number; goal: string; holds: boolean }[]): unknown =>
      readAttack(catcher, { goals })
    expect(verdict({ name: 'pg: deadlocks', ...lost })).toMatchObject({ caught: 'pg: deadlocks: 3, not = 0' })
    expect(verdict({ name: 'deadlocks of all', ...lost })).toMatchObject({ caught: expect.stringContaining('of all') })
    expect(verdict({ name: 'deadlocks', ...held })).toEqual({ caught: undefined, failure: undefined })
    expect(verdict({ name: 'control: deadlocks', ...lost })).toEqual({ caught: undefined, failure: undefined })
    expect(verdict({ name: 'sum', ...lost })).toEqual({ caught: undefined, failure: 'only noticed: sum' })
    expect(readAttack(catcher, {})).toMatchObject({ caught: undefined, failure: expect.any(String) })
  })

  test('of the lab is a violation of the invariant that is meant', () => {
    const catcher = { by: 'lab', scenario: 'lease', invariant: 'mutual exclusion' } as const
    const of = (invariant: string): object => ({ invariant, scenario: 'lease', text: '2 held it' })
    const verdict = (...violations: object[]): unknown => readLab(catcher, { violations: violations as never })
    expect(verdict(of('mutual exclusion'))).toMatchObject({ caught: 'mutual exclusion, 1x: 2 held it' })
    expect(verdict()).toEqual({ caught: undefined, failure: undefined })
    expect(verdict(of('no deadlock'))).toEqual({ caught: undefined, failure: 'only noticed: no deadlock' })
    expect(readLab(catcher, {})).toMatchObject({ caught: undefined, failure: expect.any(String) })
  })

  test('of a test is a failure of a test that ran', () => {
    const catcher = { by: 'test', file: 'x', test: 'one holder' } as const
    const verdict = (...results: { fullName: string; status: string; failureMessages?: string[] }[]): unknown =>
      readTest(catcher, { testResults: [{ assertionResults: results }] })
    expect(verdict({ fullName: 'pg one holder', status: 'failed', failureMessages: ['two\n at x'] })).toMatchObject({
      caught: 'two',
    })
    expect(verdict({ fullName: 'pg one holder', status: 'passed' })).toEqual({ caught: undefined, failure: undefined })
    // A file that cannot be loaded finds nothing out.
    expect(verdict({ fullName: 'pg another', status: 'failed' })).toMatchObject({
      caught: undefined,
      failure: expect.any(String),
    })
    expect(readTest(catcher, {})).toMatchObject({ caught: undefined, failure: expect.any(String) })
  })
})
