import type { Outcome } from './command.ts'
import { type CommandLine, parseCommandLine } from './commandLine.ts'
import { commands } from './commands.ts'
import { NAME_ONE, namesDatabase } from './databaseUrl.ts'
import { explain, type Explanation } from './explain.ts'
import { helpAsJson, helpFor } from './help.ts'
import { untilInterrupted } from './interrupt.ts'
import { packageVersion } from '../packageVersion.ts'
import { Screen } from './screen.ts'
import { type Terminal, terminalOf } from './terminal.ts'
import { UsageError } from './usageError.ts'
import { wrap } from './wrap.ts'

/** Runs one command line to its end and says how; never throws. */
export async function run(args: readonly string[]): Promise<number> {
  // Asked of the raw arguments: a command line that cannot be parsed gets its answer in the form that it wished for, too.
  const json = args.includes('--json')
  let answers: NodeJS.WriteStream = process.stdout
  try {
    const line = parseCommandLine(args, commands)
    if (line.asks === undefined && line.command?.fillsStdout?.(line.call) === true) answers = process.stderr
    const screen = new Screen(
      (text) => void process.stdout.write(text),
      () => terminalOf(process.stdout),
    )
    const outcome = await execute(line, (shown) => {
      if (json) process.stdout.write(`${JSON.stringify(shown.json)}\n`)
      else screen.show((terminal) => shown.text(terminal))
    })
    if (outcome === undefined) return 0
    const text = json ? JSON.stringify(outcome.json) : outcome.text(terminalOf(answers))
    answers.write(`${text}\n`)
    return outcome.exitCode
  } catch (error) {
    const explanation = explain(error)
    const { code, message, advice } = explanation
    if (json) answers.write(`${JSON.stringify({ ok: false, error: { code, message, advice } })}\n`)
    // A program that reads its answer from stderr finds nothing else there.
    if (!json || answers === process.stdout) process.stderr.write(complaint(explanation, terminalOf(process.stderr)))
    if (process.env['LOCKSTEP_DEBUG'] === '1') console.error(error)
    return explanation.exitCode
  }
}

/** Gives nothing where it has shown all there was. */
async function execute(
  { command, call, asks, implied }: CommandLine,
  show: (outcome: Outcome) => void,
): Promise<Outcome | undefined> {
  if (asks === 'version') return version()
  if (asks === 'help' || command === undefined) return help(command?.name)
  // Nothing was asked for, and there is nothing to ask.
  if (implied && !namesDatabase(call.values.url)) return help(undefined, `No database was named. ${NAME_ONE}`)
  if (call.values.watch !== 'true') return command.run(call)
  await untilInterrupted(async (stop) => command.watch?.(call, show, stop))
  return undefined
}

/** Help, and what is to be said below it. */
function help(name: string | undefined, hint?: string): Outcome {
  return {
    exitCode: 0,
    json: { ok: true, command: 'help', ...helpAsJson(commands, name), ...(hint !== undefined && { hint }) },
    text: ({ columns }) => [helpFor(commands, name, columns), ...(hint === undefined ? [] : [hint])].join('\n\n'),
  }
}

function version(): Outcome {
  const text = packageVersion()
  return { exitCode: 0, json: { ok: true, command: 'version', version: text }, text: () => text }
}

function complaint({ code, message, advice, exitCode }: Explanation, { paint, columns }: Terminal): string {
  const lines = wrap(`pg-lockstep: ${message}`, columns).map((line) => paint('red', line))
  if (advice !== '') lines.push(...wrap(advice, columns))
  // Who mistyped needs no code to search for.
  if (exitCode !== UsageError.exitCode) lines.push(paint('dim', `code: ${code}`))
  return `${lines.join('\n')}\n`
}
