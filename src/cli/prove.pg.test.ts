import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, inject, test } from 'vitest'
import pg from 'pg'
import { nodeArguments } from '../../tools/server/nodeArguments.ts'
import { command } from '../../tools/check/command.ts'
import { root } from '../../tools/check/repository.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { checkShapes } from '../../tools/server/testing/cliShapes.ts'

const main = nodeArguments(new URL('main.ts', import.meta.url))
// The schema is one: who plays in the same database would take it away.
const database = await testDatabase({ leakGuard: false })
let directory = ''

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'lockstep-prove-test-'))
})

afterAll(() => rm(directory, { recursive: true, force: true }))

/** As a user runs it. It must not use the server of the tests. */
function run(...args: string[]): Promise<{ code: number | null; output: string }> {
  return command(process.execPath, [...main, 'prove', ...args], { cwd: root })
}

test.each([
  ['--scenario', 'walet', 'There are wallet, transfers'],
  ['--fault', 'fire', 'There are kill, pause'],
  ['--seed', '1.5', 'Use a whole number'],
  ['--minutes', 'long', 'Use a number above 0'],
  ['--minutes', '0', 'Use a number above 0'],
  ['--asynchronous', '--json', 'Add --cluster'],
])('rejects %s %s', async (option, value, advice) => {
  const { code, output } = await run(option, value)
  expect(code).toBe(2)
  expect(output).toContain(advice)
})

test('rejects a server that others use, with the reasons', async () => {
  const other = new pg.Client({ connectionString: inject('adminUrl'), application_name: 'an application' })
  await other.connect()
  try {
    const { code, output } = await run('--against', inject('adminUrl'), '--minutes', '0.05')
    expect(code).toBe(1)
    expect(output).toContain('looks like one that people depend on')
    expect(output).toContain('--anyway')
  } finally {
    await other.end()
  }
})

test('catches a broken recipe, with a report, and repeats it by its seed', async () => {
  const report = join(directory, 'report.html')
  const picture = join(directory, 'picture.svg')
  const args = ['--scenario', 'wallet', '--fault', 'none', '--form', 'naive', '--minutes', '0.05', '--report', report]
  const { code, output } = await run(...args, '--seed', '4', '--picture', picture, '--json')
  expect(code).toBe(0)
  checkShapes(output)
  const told = JSON.parse(output.trim().split('\n').at(-1) ?? '') as {
    ok: boolean
    replay: string
    goals: { holds: boolean }[]
    violations: { invariant: string }[]
  }
  expect(told).toMatchObject({ ok: true, verdict: 'holds', command: 'prove', seed: 4 })
  expect(told.goals.every(({ holds }) => holds)).toBe(true)
  expect(told.violations[0]?.invariant).toBe('linearizable register')
  expect(told.replay).toContain('--seed 4 --minutes 0.05 --scenario wallet --fault none --form naive')
  expect(await readFile(report, 'utf8')).toContain('linearizable register')
  expect(await readFile(picture, 'utf8')).toContain('<svg')
  const again = await run(...args, '--seed', '4', '--json')
  expect(again.output).toContain('"invariant":"linearizable register"')
})

test('ends on an interrupt, and removes what it made', async () => {
  const against = database.url
  const args = ['--against', against, '--anyway', '--scenario', 'wallet', '--fault', 'none', '--minutes', '5']
  const report = ['--report', join(directory, 'interrupted.html')]
  const child = spawn(process.execPath, [...main, 'prove', ...args, ...report], {
    cwd: root,
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  // The first line comes when it is in progress.
  await once(child.stderr, 'data')
  child.kill('SIGINT')
  const [code, signal] = (await once(child, 'exit')) as [number | null, string | null]
  // It has shown nothing, and found nothing.
  expect({ code, signal }).toEqual({ code: 3, signal: null })
  const client = new pg.Client(against)
  await client.connect()
  const { rows } = await client.query(`SELECT FROM pg_namespace WHERE nspname = 'lockstep_prove'`)
  await client.end()
  expect(rows).toEqual([])
  expect(await readFile(join(directory, 'interrupted.html'), 'utf8')).toContain('race lab')
})
