import { cp, mkdir, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { command } from '../check/command.ts'
import { root } from '../check/repository.ts'
import { areInstalled, install } from '../dependencies.ts'
import type { App } from './appProcess.ts'

/** Where Next.js is installed: too large for every install of the repository. */
const bundlesFolder = join(root, 'tools', 'bundles')

export const COMPILERS = ['turbopack', 'webpack'] as const
export type Compiler = (typeof COMPILERS)[number]

/** Where Next.js is in a project. */
export function nextProgram(project: string): string {
  return join(project, 'node_modules', 'next', 'dist', 'bin', 'next')
}

/** Copies an application, Next.js and the packed package into a project. Turbopack refuses packages that are links out of it. */
export async function makeNextProject(project: string, source: string, packageDirectory: string): Promise<void> {
  if (!areInstalled(bundlesFolder)) {
    process.stderr.write('installing Next.js\n')
    install(bundlesFolder)
  }
  const packages = join(project, 'node_modules')
  await mkdir(project, { recursive: true })
  await copyPackages(join(bundlesFolder, 'node_modules'), packages)
  await cp(packageDirectory, join(packages, 'pg-lockstep'), { recursive: true })
  for (const part of await readdir(source)) await cp(join(source, part), join(project, part), { recursive: true })
}

/** By hard links where the system can: Next.js has 200 MB. */
export async function copyPackages(from: string, to: string): Promise<void> {
  await mkdir(to)
  const linked = await command('cp', ['-al', `${from}/.`, to], { cwd: bundlesFolder })
  if (linked.code === 0) return
  await rm(to, { recursive: true, force: true })
  await cp(from, to, { recursive: true, verbatimSymlinks: true })
}

/** Builds the example with one of the two bundlers. */
export async function buildNextApp(project: string, packageDirectory: string, compiler: Compiler): Promise<App> {
  await makeNextProject(project, join(root, 'examples', 'next'), packageDirectory)
  const next = nextProgram(project)
  const args = [next, 'build', `--${compiler}`]
  const { code, output } = await command(process.execPath, args, {
    cwd: project,
    env: { NEXT_TELEMETRY_DISABLED: '1' },
  })
  if (code !== 0) throw new Error(`next build --${compiler} exited with ${code}\n${output}`)
  return {
    program: process.execPath,
    args: (port) => [next, 'start', '--hostname', '127.0.0.1', '--port', String(port)],
    cwd: project,
    hasForm: true,
  }
}
