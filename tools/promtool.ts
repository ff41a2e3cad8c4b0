import { spawnSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { findProgram } from './server/findProgram.ts'

const cached = fileURLToPath(new URL('../node_modules/.cache/promtool/promtool', import.meta.url))

/** Prometheus's own checker of rules: the machine's, or the one that `fetchPromtool()` has brought. */
export function findPromtool(): string | undefined {
  return findProgram('promtool') ?? (existsSync(cached) ? cached : undefined)
}

/**
 * Takes promtool out of Debian's package of Prometheus without installing that, which would bring a server that starts by itself.
 * Gives what went wrong; nothing where promtool is there.
 */
export function fetchPromtool(): string | undefined {
  if (findPromtool() !== undefined) return undefined
  if (findProgram('apt-get') === undefined || findProgram('dpkg-deb') === undefined) return 'this is no Debian'
  const directory = mkdtempSync(join(tmpdir(), 'lockstep-promtool-'))
  try {
    const run = (program: string, ...args: string[]): string | undefined => {
      const { status, stderr, error } = spawnSync(program, args, { cwd: directory, encoding: 'utf8' })
      return status === 0 ? undefined : `${program} ${args.join(' ')} failed: ${error?.message ?? stderr.trim()}`
    }
    const failure = run('apt-get', '-qq', 'download', 'prometheus')
    if (failure !== undefined) return failure
    const archive = readdirSync(directory).find((file) => file.endsWith('.deb'))
    if (archive === undefined) return 'apt-get download brought nothing'
    const unpacking = run('dpkg-deb', '-x', archive, 'package')
    if (unpacking !== undefined) return unpacking
    mkdirSync(join(cached, '..'), { recursive: true })
    copyFileSync(join(directory, 'package', 'usr', 'bin', 'promtool'), cached)
    return undefined
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}
