import { spawnSync } from 'node:child_process'
import { describe, expect, test } from 'vitest'
import { findProgram } from '../../tools/server/findProgram.ts'
import { nodeArguments } from '../../tools/server/nodeArguments.ts'

const main = [process.execPath, ...nodeArguments(new URL('main.ts', import.meta.url))]

/** Runs the command on a terminal of its own, as `script` of util-linux makes one. */
function onTerminal(args: readonly string[], columns: number, env: NodeJS.ProcessEnv = {}): string {
  const line = [...main, ...args].map((each) => `'${each}'`).join(' ')
  const given: NodeJS.ProcessEnv = { ...process.env, TERM: 'xterm', DATABASE_URL: '', ...env }
  for (const name of ['NO_COLOR', 'FORCE_COLOR', 'CI']) if (!(name in env)) Reflect.deleteProperty(given, name)
  const { stdout } = spawnSync('script', ['-qec', `stty cols ${columns} rows 30; ${line}`, '/dev/null'], {
    env: given,
    encoding: 'utf8',
  })
  return stdout.replaceAll('\r\n', '\n')
}

describe.skipIf(process.platform !== 'linux' || findProgram('script') === undefined)('on a real terminal', () => {
  test('a mistake is red, and in lines of its width', () => {
    const told = onTerminal(['migrat'], 30)
    expect(told).toContain('\u001B[31mpg-lockstep: There is no\u001B[0m\n')
  })

  test('nothing is colored with NO_COLOR', () => {
    const told = onTerminal(['migrat'], 80, { NO_COLOR: '1' })
    expect(told).toContain('There is no command "migrat".')
    expect(told).not.toContain('\u001B')
  })
})
