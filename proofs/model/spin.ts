import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { findProgram } from '../../tools/server/findProgram.ts'

/** Names of `#define`s, with their values. */
export type Defines = Readonly<Record<string, number | true>>

/** What an exhaustive search has found. */
export interface Searched {
  /** The property that does not hold; undefined where all of them do. */
  readonly broken: string | undefined
  /** Whether every state was visited. Not where a property was broken: the search ends there. */
  readonly complete: boolean
  readonly states: number
  readonly transitions: number
  readonly depth: number
  readonly seconds: number
  /** What the run to the broken property prints. */
  readonly steps: readonly string[]
}

/** What a model and the programs that check it need. Undefined: everything is there. */
export function missingForModel(): string | undefined {
  const missing = ['spin', 'gcc'].filter((program) => findProgram(program) === undefined)
  return missing.length === 0 ? undefined : missing.join(' and ')
}

const MOST_OUTPUT = 64 * 1024 * 1024
const DEPTH = 400_000
/** States are stored without loss, compressed by the parts of the state. */
const COMPILED_WITH = ['-w', '-DSAFETY', '-DCOLLAPSE']

/** Visits every state of a model, up to the first in which a property does not hold. */
export async function search(
  model: string,
  defines: Defines,
  limits: { readonly withinMs: number; readonly memoryMb: number; readonly signal?: AbortSignal },
): Promise<Searched> {
  const source = fileURLToPath(new URL(model, import.meta.url))
  const folder = await mkdtemp(join(tmpdir(), 'lockstep-model-'))
  const run = (program: string, args: readonly string[]): Promise<string> =>
    runIn(folder, program, args, limits.withinMs, limits.signal)
  try {
    await run('spin', ['-a', ...flagsOf(defines), source])
    await run('gcc', ['-O2', ...COMPILED_WITH, `-DMEMLIM=${limits.memoryMb}`, '-o', 'pan', 'pan.c'])
    const startedAt = performance.now()
    const out = await run(join(folder, 'pan'), [`-m${DEPTH}`])
    const seconds = (performance.now() - startedAt) / 1000
    const broken = /assertion violated (\w+)/.exec(out)?.[1] ?? /^pan:\d+: (.*)/m.exec(out)?.[1]
    const trail = `${source.split('/').at(-1)}.trail`
    const steps =
      broken === undefined
        ? []
        : stepsIn(await run('spin', ['-t', '-T', '-k', join(folder, trail), ...flagsOf(defines), source]))
    return {
      broken,
      complete: broken === undefined && !/Search not completed|max search depth too small/.test(out),
      states: numberIn(out, /(\d+) states, stored/),
      transitions: numberIn(out, /(\d+) transitions/),
      depth: numberIn(out, /depth reached (\d+)/),
      seconds,
      steps,
    }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** What one random run of a model prints. Undefined where a property did not hold. */
export async function randomRun(
  model: string,
  defines: Defines,
  seed: number,
  withinMs: number,
): Promise<readonly string[] | undefined> {
  const source = fileURLToPath(new URL(model, import.meta.url))
  const folder = await mkdtemp(join(tmpdir(), 'lockstep-model-'))
  try {
    const out = await runIn(folder, 'spin', ['-T', '-u100000', `-n${seed}`, ...flagsOf(defines), source], withinMs)
    return out.includes('assertion violated') ? undefined : stepsIn(out)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

function flagsOf(defines: Defines): string[] {
  return Object.entries(defines).map(([name, value]) => (value === true ? `-D${name}` : `-D${name}=${value}`))
}

/** The lines that are for replay.ts. */
function stepsIn(out: string): string[] {
  return out
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line.startsWith('@ '))
    .map((line) => line.slice(2))
}

function numberIn(out: string, pattern: RegExp): number {
  return Number(pattern.exec(out)?.[1] ?? Number.NaN)
}

/** What it prints. Spin and its verifier end with a status of their own where a property does not hold: what they say counts. */
function runIn(
  cwd: string,
  program: string,
  args: readonly string[],
  timeout: number,
  signal?: AbortSignal,
): Promise<string> {
  const options = { cwd, timeout, maxBuffer: MOST_OUTPUT, ...(signal === undefined ? {} : { signal }) }
  return new Promise((resolve, reject) => {
    execFile(program, [...args], options, (error, stdout, stderr) => {
      if (error?.killed === true) return reject(new Error(`${program} did not end within ${timeout / 1000} s.`))
      const failed = error !== null && !/assertion violated|spin: trail ends/.test(stdout)
      if (failed || /Error: (?!assertion)/.test(stdout)) return reject(new Error(`${program}: ${stdout}${stderr}`))
      resolve(stdout)
    })
  })
}
