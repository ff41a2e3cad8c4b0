import { parseArgs } from 'node:util'
import type { Call, Command, OptionName } from './command.ts'
import { nearest } from '../nearest.ts'
import { OPTIONS } from './options.ts'
import { UsageError } from './usageError.ts'

export interface CommandLine {
  readonly command: Command | undefined
  readonly call: Call
  /** What is asked for instead of the command's work. */
  readonly asks: 'help' | 'version' | undefined
  /** No command was written: this is the one that is meant. */
  readonly implied: boolean
}

/** What is meant where no command is written. */
const IMPLIED = 'status'

const SEE_HELP = 'Run `pg-lockstep help` to see what there is.'

/** Takes a command line apart, or says what is wrong with it. */
export function parseCommandLine(args: readonly string[], commands: readonly Command[]): CommandLine {
  // Not strict, because the errors of parseArgs differ by their text only. The tokens say all that is needed.
  const { tokens } = parseArgs({
    args: [...args],
    strict: false,
    tokens: true,
    allowPositionals: true,
    options: {
      ...Object.fromEntries(Object.entries(OPTIONS).map(([name, { type }]) => [name, { type }])),
      help: { type: 'boolean', short: 'h' },
      version: { type: 'boolean', short: 'v' },
    },
  })
  const [name, ...words] = tokens.flatMap((token) => (token.kind === 'positional' ? [token.value] : []))
  const given = tokens.filter((token) => token.kind === 'option')
  const implied = name === undefined
  const asks = (['help', 'version'] as const).find((each) => given.some((option) => option.name === each))
  if (asks !== undefined) {
    const about = implied ? undefined : findCommand(name, commands)
    return { command: about, call: { words, values: {} }, asks, implied }
  }
  const command = findCommand(name ?? IMPLIED, commands)
  const values: Partial<Record<OptionName, string>> = {}
  for (const { rawName, name: optionName, value, inlineValue } of given) {
    const known = checkOption(command, rawName, optionName, implied)
    values[known] = checkValue(known, value, inlineValue === true)
  }
  checkWords(command, words)
  return { command, call: { words, values }, asks: undefined, implied }
}

function findCommand(name: string, commands: readonly Command[]): Command {
  const names = commands.map((command) => command.name)
  const found = commands.find((command) => command.name === name)
  if (found !== undefined) return found
  const meant = nearest(name, names)
  const guess = meant === undefined ? `The commands are ${names.join(', ')}.` : `Did you mean \`${meant}\`?`
  throw new UsageError(`There is no command ${JSON.stringify(name)}.`, `${guess} ${SEE_HELP}`)
}

function checkOption(command: Command, rawName: string, name: string, implied: boolean): OptionName {
  const found = command.options.find((option) => option === name)
  if (found !== undefined && rawName.startsWith('--')) return found
  // Without a command, the error names none.
  if (implied && name in OPTIONS) throw new UsageError(`${rawName} belongs to a command, and there is none.`, SEE_HELP)
  const meant = nearest(name, [...command.options, 'help'])
  const guess = meant === undefined || name in OPTIONS ? '' : `Did you mean \`--${meant}\`? `
  throw new UsageError(
    `${implied ? 'The status' : `\`${command.name}\``} has no option ${rawName}.`,
    `${guess}Run \`pg-lockstep help ${command.name}\` to see what it takes.`,
  )
}

function checkValue(name: OptionName, value: string | undefined, inline: boolean): string {
  const { type, choices, value: wanted } = OPTIONS[name]
  if (type === 'boolean') {
    if (value === undefined) return 'true'
    throw new UsageError(`--${name} takes no value.`, `Write --${name} alone.`)
  }
  // `--url --json` is a forgotten value, not a database of that name.
  if (value === undefined || value === '' || (!inline && value.startsWith('-'))) {
    throw new UsageError(`--${name} needs a value.`, `Write --${name} ${wanted}.`)
  }
  if (choices !== undefined && !choices.includes(value)) {
    throw new UsageError(`--${name} cannot be ${JSON.stringify(value)}.`, `Use ${choices.join(' or ')}.`)
  }
  return value
}

function checkWords(command: Command, words: readonly string[]): void {
  const [word] = words
  const most = 1 + (command.moreWords ?? 0)
  if (command.words.length === 0 && word !== undefined) {
    throw new UsageError(`\`${command.name}\` takes no ${JSON.stringify(word)}.`, SEE_HELP)
  }
  if (words.length > most) {
    const bound = most === 1 ? 'one word' : `${most} words at most`
    throw new UsageError(`\`${command.name}\` takes ${bound}, not ${words.length}.`, SEE_HELP)
  }
  if (word === undefined || command.words.includes(word)) return
  const meant = nearest(word, command.words)
  throw new UsageError(
    `\`${command.name}\` does not know ${JSON.stringify(word)}.`,
    meant === undefined ? `It knows ${command.words.join(', ')}.` : `Did you mean \`${meant}\`?`,
  )
}
