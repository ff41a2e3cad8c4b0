import { spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { findProgram } from '../../tools/server/findProgram.ts'
import { parseCommandLine } from './commandLine.ts'
import { commands } from './commands.ts'

async function answer(...args: string[]): Promise<string> {
  const { command, call } = parseCommandLine(['completion', ...args], commands)
  const outcome = await command?.run(call)
  return outcome?.text({ columns: Infinity, rows: Infinity, paint: (_, text) => text }) ?? ''
}

/** What each shell completes, after its set-up file was read. */
const COMPLETES: Readonly<Record<string, (line: string) => string>> = {
  bash: (line) =>
    `source ~/.bashrc; COMP_WORDS=(${line}); COMP_CWORD=$((\${#COMP_WORDS[@]} - 1)); _pg_lockstep; printf '%s\\n' "\${COMPREPLY[@]}"`,
  // The widgets of zsh need a terminal: what they are given is printed in their place.
  zsh: (line) =>
    `compdef() { :; }; _describe() { print -l \${commands%%:*}; }; _arguments() { print -l -- \${@%%\\[*}; }
     source ~/.zshrc; words=(${line}); CURRENT=$#words; _pg_lockstep`,
  fish: (line) => `complete -C '${line}'`,
}

describe.each(Object.keys(COMPLETES))('completion for %s', (shell) => {
  const program = findProgram(shell)
  let home = ''
  beforeAll(() => {
    home = mkdtempSync(join(tmpdir(), 'lockstep-completion-'))
  })
  afterAll(() => {
    vi.unstubAllEnvs()
    rmSync(home, { recursive: true, force: true })
  })

  function run(script: string): string {
    const env = { ...process.env, HOME: home, PATH: `${home}:${process.env['PATH']}`, XDG_CONFIG_HOME: '' }
    const { stdout, stderr, status } = spawnSync(program ?? shell, ['-c', script], { env, encoding: 'utf8' })
    if (status !== 0) throw new Error(`${shell} ended with ${status}: ${stderr}`)
    return stdout
  }

  test.skipIf(program === undefined && process.env['CI'] !== 'true')(
    'installs itself by the printed command, twice',
    async () => {
      vi.stubEnv('SHELL', `/usr/bin/${shell}`)
      const line = await answer()
      expect(line.split('\n')).toHaveLength(1)
      // In place of npx: prints what the command prints.
      writeFileSync(join(home, 'script'), `${await answer(shell)}\n`)
      writeFileSync(
        join(home, 'npx'),
        '#!/bin/sh\n[ "$*" = "pg-lockstep completion ' + shell + '" ] && cat "$HOME/script"\n',
      )
      chmodSync(join(home, 'npx'), 0o755)
      run(line)
      run(line)
      if (shell !== 'fish')
        expect(
          readFileSync(join(home, `.${shell}rc`), 'utf8')
            .trim()
            .split('\n'),
        ).toHaveLength(1)
      const first = run(COMPLETES[shell]!(shell === 'fish' ? 'pg-lockstep ' : `pg-lockstep ''`))
      for (const { name } of commands) expect(first).toContain(name)
      const options = run(COMPLETES[shell]!('pg-lockstep doctor --dr'))
      expect(options).toContain('--driver')
    },
  )
})

test('the shell is named where it is not known', async () => {
  vi.stubEnv('SHELL', '/bin/ksh')
  await expect(answer()).rejects.toThrow('The shell is unknown.')
  vi.unstubAllEnvs()
})
