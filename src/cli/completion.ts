import type { Command } from './command.ts'
import { OPTIONS } from './options.ts'
import { UsageError } from './usageError.ts'

const BINS = ['pg-lockstep', 'lockstep']

const writers: Readonly<Record<string, (commands: readonly Command[]) => string>> = { bash, zsh }

/** The scripts are made from the table of commands, so they cannot forget one; they ask nothing of us when they run. */
export function completionCommand(commands: () => readonly Command[]): Command {
  const shells = Object.keys(writers)
  return {
    name: 'completion',
    summary: 'print the script that completes these commands in your shell',
    usage: shells.join('|'),
    details: `Prints a script for your shell:

  bash:  source <(npx pg-lockstep completion bash)     in ~/.bashrc
  zsh:   source <(npx pg-lockstep completion zsh)      in ~/.zshrc, after compinit`,
    examples: [
      { line: 'pg-lockstep completion bash', does: 'the script for bash' },
      { line: 'pg-lockstep completion zsh', does: 'the script for zsh' },
    ],
    options: ['json'],
    words: shells,
    async run({ words }) {
      const shell = words[0] ?? ''
      const write = writers[shell]
      if (write === undefined)
        throw new UsageError('For which shell?', `Write \`pg-lockstep completion ${shells.join('|')}\`.`)
      const text = write(commands())
      return { exitCode: 0, json: { ok: true, command: 'completion', shell, text }, text: () => text }
    },
  }
}

function flagsOf({ options }: Command): string[] {
  return [...options.map((option) => `--${option}`), '--help']
}

function bash(commands: readonly Command[]): string {
  const cases = commands.map(
    (command) => `    ${command.name}) words='${[...command.words, ...flagsOf(command)].join(' ')}' ;;`,
  )
  const choices = Object.entries(OPTIONS).flatMap(([name, { type, choices: offered }]) =>
    type === 'string' ? [`    --${name}) words='${(offered ?? []).join(' ')}' ;;`] : [],
  )
  return `_pg_lockstep() {
  local words='${[...commands.map(({ name }) => name), '--help', '--version'].join(' ')}'
  case \${COMP_WORDS[1]} in
${cases.join('\n')}
  esac
  [ "$COMP_CWORD" -gt 1 ] || words='${[...commands.map(({ name }) => name), '--help', '--version'].join(' ')}'
  case \${COMP_WORDS[COMP_CWORD - 1]} in
${choices.join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -F _pg_lockstep ${BINS.join(' ')}`
}

function zsh(commands: readonly Command[]): string {
  const described = commands.map(({ name, summary }) => `'${name}:${quoted(summary)}'`)
  const cases = commands.map((command) => {
    const flags = command.options.map((option) => {
      const { value, summary, choices } = OPTIONS[option]
      const wanted = value === '' ? '' : `:${value}:${choices === undefined ? '' : `(${choices.join(' ')})`}`
      return `'--${option}[${quoted(summary).replaceAll(':', '\\:')}]${wanted}'`
    })
    const words = command.words.length === 0 ? [] : [`'1:what:(${command.words.join(' ')})'`]
    return `    ${command.name}) _arguments ${[...words, ...flags, "'--help[about it]'"].join(' ')} ;;`
  })
  return `#compdef ${BINS.join(' ')}
_pg_lockstep() {
  local -a commands=(${described.join(' ')})
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
${cases.join('\n')}
  esac
}
compdef _pg_lockstep ${BINS.join(' ')}`
}

/** For a place between single quotes. */
function quoted(text: string): string {
  return text.replaceAll("'", "'\\''")
}
