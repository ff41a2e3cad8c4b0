import { expect, test, vi } from 'vitest'
import { parseCommandLine } from './commandLine.ts'
import { commands } from './commands.ts'
import { parseDuration } from './parseValues.ts'
import { UsageError } from './usageError.ts'
import { formatSize } from './formatting.ts'

async function complaint(args: readonly string[]): Promise<string> {
  // A command that asks for a database has accepted its arguments.
  vi.stubEnv('DATABASE_URL', '')
  try {
    const { command, call } = parseCommandLine(['outbox', ...args], commands)
    const never = (): void => expect.unreachable()
    if (call.values.watch === 'true') await command?.watch?.(call, never, new AbortController().signal)
    else await command?.run(call)
  } catch (error) {
    if (error instanceof UsageError) return `${error.message} ${error.advice}`
    throw error
  } finally {
    vi.unstubAllEnvs()
  }
  return ''
}

test.each([
  ['Did you mean `status`?', ['stauts']],
  ['`outbox` takes 3 words at most, not 4.', ['retry', 'a', 'b', 'c']],
  ['`outbox parked` cannot do anything with "trades".', ['parked', 'trades']],
  ['`outbox verify` cannot do anything with "b".', ['verify', 'a', 'b']],
  ['--watch is for `outbox status`. Write `pg-lockstep outbox parked [--dispatcher NAME]`.', ['parked', '--watch']],
  ['--dispatcher is for `outbox parked`, `outbox retry`,', ['--dispatcher', 'x']],
  ['--reason is for `outbox skip`, `outbox pause`, `outbox redrive`', ['retry', 'a', 'b', '--reason', 'x']],
  ['--limit cannot be "many".', ['parked', '--limit', 'many']],
  ['--limit cannot be 0.', ['parked', '--limit', '0']],
  ['No stream was named. Write `pg-lockstep outbox retry TOPIC KEY`.', ['retry']],
  ['No stream was named. Write `pg-lockstep outbox pause TOPIC KEY [--reason TEXT]`.', ['pause', 'trades']],
  ['No stream was named.', ['resume', 'trades', '']],
  ['No stream was named.', ['erase', '', '42', '--reason', 'x']],
  ['--reason is missing. Write `pg-lockstep outbox skip TOPIC KEY --reason TEXT`.', ['skip', 'trades', '42']],
  ['--reason is missing. Write `pg-lockstep outbox erase TOPIC KEY --reason TEXT`.', ['erase', 'trades', '42']],
  ['--key alone is no stream.', ['replay', '--key', '42']],
  ['--from-seq is for one stream.', ['replay', '--topic', 'trades', '--from-seq', '2']],
  ['--to-seq is for one stream.', ['replay', '--to-seq', '2']],
  ['--from-position is for all streams.', ['replay', '--topic', 'a', '--key', 'b', '--from-position', '2']],
  ['--from-seq cannot be "two".', ['replay', '--topic', 'a', '--key', 'b', '--from-seq', 'two']],
  ['--from-position cannot be "99999999999999999".', ['replay', '--from-position', '99999999999999999']],
  ['From 3 to 2 there is no number.', ['replay', '--topic', 'a', '--key', 'b', '--from-seq', '3', '--to-seq', '2']],
  ['There is no file "./no-such.mjs".', ['replay', '--sink', './no-such.mjs']],
  ['--older-than is missing. Write `pg-lockstep outbox retain --older-than TIME`.', ['retain']],
  ['--older-than cannot be "7". Use a whole number and its unit', ['retain', '--older-than', '7']],
  ['--older-than cannot be "1.5h".', ['retain', '--older-than', '1.5h']],
  ['Write --deliver undelivered for what was not delivered yet', ['rebase', '--reason', 'x']],
  ['--deliver cannot be "some". Use undelivered or all or none.', ['rebase', '--deliver', 'some', '--reason', 'x']],
  ['--reason is missing. Write `pg-lockstep outbox rebase', ['rebase', '--deliver', 'all']],
  ['There is no file "no-such.jsonl".', ['verify', 'no-such.jsonl']],
  ['This cannot be read: "src".', ['verify', 'src']],
  // And these are right: a database is what they want next.
  ['No database was named.', []],
  ['No database was named.', ['status', '--watch']],
  ['No database was named.', ['retry', '--', 'trades', '-1']],
  ['No database was named.', ['replay', '--topic', 'a', '--key', 'b', '--from-seq', '2', '--to-seq', '2']],
  ['No database was named.', ['rebase', '--deliver', 'none', '--reason', 'x']],
])('%s %j', async (expected, args) => {
  expect(await complaint(args)).toContain(expected)
})

test('completes verbs, options and values of --deliver', async () => {
  const { command, call } = parseCommandLine(['completion', 'bash'], commands)
  const script = (await command?.run(call))?.json['text']
  expect(script).toMatch(/ outbox\) words='status parked retry skip .* verify --url .*--from-seq .*--help' ;;/)
  expect(script).toContain("--deliver) words='undelivered all none' ;;")
})

test.each([
  ['0s', 0],
  ['30s', 30_000],
  ['15m', 900_000],
  ['12h', 43_200_000],
  ['7d', 604_800_000],
])('reads %s as %d ms', (text, ms) => {
  expect(parseDuration('older-than', text)).toBe(ms)
})

test.each([
  [0, '0 bytes'],
  [1023, '1023 bytes'],
  [1024, '1.0 kB'],
  [150 * 1024, '150 kB'],
  [5.25 * 1024 ** 3, '5.3 GB'],
  [2048 * 1024 ** 4, '2048 TB'],
])('formats %d bytes as %s', (bytes, text) => {
  expect(formatSize(bytes)).toBe(text)
})
