import type { Command } from './command.ts'
import { OPTIONS } from './options.ts'
import { table } from './table.ts'

/** The list of commands, or all about one. */
export function helpFor(commands: readonly Command[], name: string | undefined): string {
  const command = commands.find((each) => each.name === name)
  return command === undefined ? overview(commands) : about(command)
}

function overview(commands: readonly Command[]): string {
  return `Lockstep: correct concurrency on the PostgreSQL you already have.

Usage: pg-lockstep COMMAND [OPTIONS]

${table(commands.map(({ name, usage, summary }) => [`  ${`${name} ${usage}`.trim()}`, summary]))}

${table([
  ['  --help, -h', 'help; after a command, about that'],
  ['  --version, -v', 'the version of this package'],
])}

Exit codes: 0 done, 1 failed, or found broken by the doctor or by outbox verify, 2 wrong usage.
LOCKSTEP_DEBUG=1 shows the stack of an error, NO_COLOR=1 turns colours off.`
}

function about({ name, usage, details, options }: Command): string {
  const head = `Usage: pg-lockstep ${`${name} ${usage}`.trim()}${options.length === 0 ? '' : ' [OPTIONS]'}\n\n${details}`
  if (options.length === 0) return head
  const rows = options.map((option) => {
    const { value, summary } = OPTIONS[option]
    return [`  ${`--${option} ${value}`.trim()}`, summary]
  })
  return `${head}\n\n${table(rows)}`
}
