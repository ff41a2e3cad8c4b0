/**
 * `npm run load`: many clients on the desk, and then the question whether everything is right.
 *
 * **The clients** have no timeout of their own. They send a request again, with the same Idempotency-Key, where their connection was closed
 * without an answer, and they remember their answers. Every request has a mark that its effect keeps in the database.
 *
 * **The faults**, if asked for: processes are killed with requests in them, sessions are ended at work, and the exchange loses answers. They
 * are counted only where they struck something.
 *
 * **The end.** When everything has come to rest, each system's own check is run, and what the clients remember is held against the database:
 * acknowledged is there once, refused is not there, unanswered is there once at most. One violation, or one request that was neither answered
 * nor reset, and it ends with 1. Where nothing is wrong but the run has not shown enough, it ends with 3.
 */
import { endProgress, progress } from '../../tools/judge/progress.ts'
import { printReport } from '../../tools/judge/report.ts'
import { type LoadOptions, OptionError, parseOptions, USAGE } from './options.ts'
import { startOwnDesk, type Target } from './ownDesk.ts'
import { reportOf, retryLine, violationLines } from './report.ts'
import { run } from './run.ts'

const TELL_EVERY_MS = process.stderr.isTTY ? 200 : 10_000

async function main(): Promise<number> {
  const options = parseOptions(process.argv.slice(2))
  if (options === 'help') {
    console.log(USAGE)
    return 0
  }
  const stopping = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    process.on(name, () => {
      // The second time: what is ours is killed behind us.
      if (stopping.signal.aborted) process.exit(130)
      stopping.abort()
    })
  }
  let told = -Infinity
  const tell = (line: string): void => {
    if (performance.now() - told < TELL_EVERY_MS) return
    told = performance.now()
    progress(line)
  }
  tell(`starting (seed ${options.seed})`)
  const target = await open(options)
  try {
    const outcome = await run(target, options, tell, stopping.signal)
    endProgress()
    console.error(retryLine(outcome))
    const lines = violationLines(outcome)
    for (const line of lines) console.error(line)
    if (lines.length > 0) console.error(['', 'The last that the desk has said:', ...target.said.slice(-20)].join('\n'))
    const status = printReport(reportOf(outcome, options), options.json)
    return status
  } catch (error) {
    if (!stopping.signal.aborted) throw error
    endProgress()
    console.error('Interrupted: nothing was looked at.')
    return 130
  } finally {
    await target.close()
  }
}

async function open({ running, processes }: LoadOptions): Promise<Target> {
  if (running === undefined) return startOwnDesk(processes)
  return { ...running, ours: false, said: [], close: async () => {} }
}

try {
  process.exitCode = await main()
} catch (error) {
  console.error(error instanceof OptionError ? error.message : error)
  process.exitCode = error instanceof OptionError ? 2 : 1
}
