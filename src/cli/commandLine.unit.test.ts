import { describe, expect, test } from 'vitest'
import { parseCommandLine } from './commandLine.ts'
import { commands } from './commands.ts'
import { nearest } from '../nearest.ts'
import { UsageError } from './usageError.ts'

function complaint(line: string): string {
  try {
    parseCommandLine(line.split(' '), commands)
  } catch (error) {
    if (error instanceof UsageError) return `${error.message} ${error.advice}`
    throw error
  }
  return ''
}

describe('a command line', () => {
  test('accepts options before or after the command', () => {
    for (const line of ['--url postgres://a/b --json doctor', 'doctor --json --url=postgres://a/b']) {
      const { command, call } = parseCommandLine(line.split(' '), commands)
      expect(command?.name).toBe('doctor')
      expect(call.values).toEqual({ url: 'postgres://a/b', json: 'true' })
    }
  })

  test.each([
    ['migrat', 'There is no command "migrat". Did you mean `migrate`?'],
    ['dcotor', 'Did you mean `doctor`?'],
    ['comp', 'Did you mean `completion`?'],
    [
      'frobnicate',
      'The commands are init, status, migrate, doctor, grants, locks, leases, outbox, consumers, rollout, guard, console, dev, prove, capacity, completion, help.',
    ],
    ['doctor --jsno', '`doctor` has no option --jsno. Did you mean `--json`?'],
    ['doctor --to 2', '`doctor` has no option --to. Run `pg-lockstep help doctor`'],
    ['doctor --url --json', '--url needs a value.'],
    ['doctor --url', '--url needs a value.'],
    ['doctor --schema=', '--schema needs a value.'],
    ['doctor --json=yes', '--json takes no value.'],
    ['doctor -j', '`doctor` has no option -j.'],
    ['doctor --watch', '`doctor` has no option --watch.'],
    ['locks --watch=1', '--watch takes no value.'],
    ['locks --statemnets', 'Did you mean `--statements`?'],
    ['leases lsit', '`leases` does not know "lsit". It knows release, history.'],
    ['leases histroy', 'Did you mean `history`?'],
    ['leases release A:1 now', '`leases` takes 2 words at most, not 3.'],
    ['leases release A:1 --terminate=yes', '--terminate takes no value.'],
    ['doctor now', '`doctor` takes no "now".'],
    ['doctor --driver mysql', '--driver cannot be "mysql". Use pg or postgres.'],
    ['completion csh', '`completion` does not know "csh". Did you mean `zsh`?'],
    ['completion bash zsh', '`completion` takes one word, not 2.'],
    ['help migrat', 'Did you mean `migrate`?'],
    ['--reason none', '--reason belongs to a command, and there is none.'],
    ['--jsno', 'The status has no option --jsno. Did you mean `--json`?'],
    ['status now', '`status` takes no "now".'],
    ['dev --url postgres://a/b', '`dev` has no option --url.'],
  ])('%s: %s', (line, expected) => {
    expect(complaint(line)).toContain(expected)
  })

  test('shows help or the version, whatever else it has', () => {
    expect(parseCommandLine(['--help'], commands)).toMatchObject({ command: undefined, asks: 'help' })
    expect(parseCommandLine(['migrate', '--bogus', '--help'], commands)).toMatchObject({ asks: 'help' })
    expect(parseCommandLine(['doctor', '-h'], commands)).toMatchObject({ command: { name: 'doctor' }, asks: 'help' })
    expect(parseCommandLine(['-v'], commands).asks).toBe('version')
  })
})

test('means the status without a command', () => {
  expect(parseCommandLine([], commands)).toMatchObject({ command: { name: 'status' }, implied: true, asks: undefined })
  const line = parseCommandLine(['--url', 'postgres://a/b', '--watch', '--json'], commands)
  expect(line).toMatchObject({ command: { name: 'status' }, implied: true })
  expect(line.call.values).toEqual({ url: 'postgres://a/b', watch: 'true', json: 'true' })
  expect(parseCommandLine(['status'], commands).implied).toBe(false)
})

test('suggests the nearest word, or none', () => {
  expect(nearest('docter', ['migrate', 'doctor'])).toBe('doctor')
  expect(nearest('fish', ['bash', 'zsh'])).toBeUndefined()
  expect(nearest('x', ['doctor'])).toBeUndefined()
  expect(nearest('', ['doctor'])).toBeUndefined()
})
