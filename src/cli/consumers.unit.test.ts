import { expect, test } from 'vitest'
import { parseCommandLine } from './commandLine.ts'
import { commands } from './commands.ts'

// Everything here fails before a database is asked.
test.each([
  [['positions'], 'No consumer was named.'],
  [['positions', 'billing', 'orders'], 'cannot do anything with "orders"'],
  [['positions', 'billing', '--limit', '0'], '--limit is 1 to 10000'],
  [['positions', 'billing', '--cursor', 'x'], 'not what a page before has printed'],
  [['list', '--topic', 'orders'], 'takes no --topic'],
  [['--topic', 'orders'], 'takes no --topic'],
  [['retry'], 'No consumer was named.'],
  [['retry', 'billing', 'orders'], 'No stream was named.'],
  [['skip', 'billing', 'orders', '42'], '--reason is missing.'],
])('refuses `consumers %s`', async (args, message) => {
  const work = async (): Promise<unknown> => {
    const { command, call } = parseCommandLine(['consumers', ...args], commands)
    return command!.run(call)
  }
  await expect(work()).rejects.toThrow(message)
})
