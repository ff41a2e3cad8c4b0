import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import { vi } from 'vitest'
import { run } from '../../../src/cli/run.ts'
import { nodeArguments } from '../nodeArguments.ts'
import { checkShapes } from './cliShapes.ts'

/** How a run of the command line has ended. */
export interface Ran {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface CommandOptions {
  /** For DATABASE_URL. */
  readonly url?: string | undefined
  readonly cwd?: string
  readonly env?: NodeJS.ProcessEnv
}

const MAIN = nodeArguments(new URL('../../../src/cli/main.ts', import.meta.url))

/** Starts `pg-lockstep` with these arguments. */
export function startCommand(args: readonly string[], options: CommandOptions = {}): ChildProcessWithoutNullStreams {
  const { url = '', cwd, env } = options
  return spawn(process.execPath, [...MAIN, ...args], {
    ...(cwd === undefined ? {} : { cwd }),
    env: { ...process.env, DATABASE_URL: url, NO_COLOR: '1', ...env },
  })
}

/** Collects what it prints, to its end. What `--json` prints has the shape that is documented. */
export async function ended(child: ChildProcessWithoutNullStreams, input = ''): Promise<Ran> {
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
  child.stdin.on('error', () => undefined)
  child.stdin.end(input)
  const [code] = (await once(child, 'close')) as [number | null]
  if (child.spawnargs.includes('--json')) checkShapes(`${stdout}\n${stderr}`)
  return { code, stdout, stderr }
}

let called: Promise<unknown> = Promise.resolve()

/**
 * Runs it in this process, one at a time: a process of its own costs a quarter of a second of a processor. That each ends by itself
 * there is shown once, by `realProcess.pg.test.ts`.
 */
export function callCommand(args: readonly string[], options: Pick<CommandOptions, 'url'> = {}): Promise<Ran> {
  const calling = called.then(() => capture(args, options.url ?? ''))
  called = calling.catch(() => undefined)
  return calling
}

async function capture(args: readonly string[], url: string): Promise<Ran> {
  const written = { stdout: '', stderr: '' }
  const streams = ['stdout', 'stderr'] as const
  const spies = streams.map((name) =>
    vi.spyOn(process[name], 'write').mockImplementation((text, ...rest) => {
      written[name] += String(text)
      for (const done of rest) if (typeof done === 'function') done()
      return true
    }),
  )
  vi.stubEnv('DATABASE_URL', url).stubEnv('NO_COLOR', '1')
  try {
    const ran = { code: await run(args), ...written }
    if (args.includes('--json')) checkShapes(`${ran.stdout}\n${ran.stderr}`)
    return ran
  } finally {
    for (const spy of spies) spy.mockRestore()
    vi.unstubAllEnvs()
  }
}

/** Runs `pg-lockstep` with these arguments, to its end. */
export function runCommand(args: readonly string[], options?: CommandOptions): Promise<Ran> {
  return ended(startCommand(args, options))
}
