import type { Command } from './command.ts'
import { EXIT_CODES } from './exitCodes.ts'
import { optionOf } from './options.ts'
import { table } from './table.ts'
import { lengthOf, wrap } from './wrap.ts'

/** The list of commands, or the help of one, in lines of at most `columns` columns. */
export function helpFor(commands: readonly Command[], name: string | undefined, columns = Infinity): string {
  const command = commands.find((each) => each.name === name)
  const text = command === undefined ? overview(commands, columns) : about(command, columns)
  return text
    .split('\n')
    .flatMap((line) => fit(line, columns))
    .join('\n')
}

/** A line that is too long continues below itself, as far from the edge. */
function fit(line: string, columns: number): string[] {
  if (lengthOf(line) <= columns) return [line]
  const indent = /^ */.exec(line)?.[0] ?? ''
  return wrap(line, Math.max(1, columns - indent.length)).map((part) => indent + part)
}

/** The same for programs. */
export function helpAsJson(commands: readonly Command[], name: string | undefined): Readonly<Record<string, unknown>> {
  const wanted = name === undefined ? commands : commands.filter((each) => each.name === name)
  return {
    commands: wanted.map(({ name: own, usage, summary, details, words, options, examples }) => ({
      name: own,
      usage,
      summary,
      details,
      words,
      options: options.map((option) => ({ name: `--${option}`, ...optionOf(own, option) })),
      examples,
    })),
    exitCodes: EXIT_CODES,
  }
}

function overview(commands: readonly Command[], columns: number): string {
  return `Lockstep: correct concurrency on the PostgreSQL you already have.

Usage: pg-lockstep [COMMAND] [OPTIONS]

${table(
  [
    ...commands.map(({ name, summary }) => [`  ${name}`, summary]),
    [''],
    ['  --help, -h', 'show help; after a command, its usage, options and examples'],
    ['  --version, -v', 'show the version of this package'],
    ['  --json', 'print one JSON object on one line, also with the two above'],
  ],
  columns,
)}

Without a command, it shows the status of the database in DATABASE_URL or --url.

Exit codes:
${table(
  EXIT_CODES.map(({ code, meaning }) => [`  ${code}`, meaning]),
  columns,
)}

LOCKSTEP_DEBUG=1 shows the stack of an error. NO_COLOR=1 turns colors off, FORCE_COLOR=1 turns them on.`
}

function about({ name, usage, details, options, examples }: Command, columns: number): string {
  const head = `Usage: pg-lockstep ${`${name} ${usage}`.trim()}${options.length === 0 ? '' : ' [OPTIONS]'}`
  const rows = options.map((option) => {
    const { value, summary } = optionOf(name, option)
    return [`  ${`--${option} ${value}`.trim()}`, summary]
  })
  const shown = examples.map(({ line, does }) => [`  ${line}`, does])
  return [
    head,
    details,
    ...(rows.length === 0 ? [] : [table(rows, columns)]),
    `Examples:\n${table(shown, columns)}`,
  ].join('\n\n')
}
