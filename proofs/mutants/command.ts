import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'

/** How a command ended. */
export interface Ended {
  readonly code: number | null
  readonly out: string
  readonly err: string
  /** It was ended because it took too long. */
  readonly tooLong: boolean
}

/** For tests and their hooks: what does not come any more, because something is broken, is not waited for long. vitest.config.ts reads it. */
const ENVIRONMENT = { ...process.env, LOCKSTEP_TEST_LIMIT_MS: '10000' }

const running = new Set<ChildProcess>()

/** Runs one of our own programs in a folder, in a process group of its own: what it starts ends with it. */
export async function runCommand(folder: string, args: readonly string[], withinMs: number): Promise<Ended> {
  const child = spawn(process.execPath, args, {
    cwd: folder,
    env: ENVIRONMENT,
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  running.add(child)
  let [out, err, tooLong] = ['', '', false]
  child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text))
  const timer = setTimeout(() => {
    tooLong = true
    end(child)
  }, withinMs)
  try {
    const [code] = (await once(child, 'close')) as [number | null]
    return { code, out, err, tooLong }
  } finally {
    clearTimeout(timer)
    // A process that is left of its group would continue in a folder that is gone.
    end(child)
    running.delete(child)
  }
}

/** Ends everything that runs. Servers have guards of their own, which end them. */
export function endCommands(): void {
  for (const child of running) end(child)
}

function end({ pid }: ChildProcess): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // It has gone, with all of its group.
  }
}
