import { basename } from 'node:path'
import type { Command } from './command.ts'
import { optionOf, OPTIONS } from './options.ts'
import { UsageError } from './usageError.ts'

const BINS = ['pg-lockstep', 'lockstep']

interface Shell {
  readonly script: (commands: readonly Command[]) => string
  /** One line for that shell that installs the script, and does nothing more when it is run again. */
  readonly install: string
}

/** The script is a file of its own, because a shell that asked npx at each start would start slowly. */
function sourcedBy(rc: string, script: string, shell: string): string {
  const source = `source ~/${script}`
  return `npx pg-lockstep completion ${shell} > ~/${script} && { grep -qsF '${source}' ~/${rc} || echo '${source}' >> ~/${rc}; }`
}

const SHELLS: Readonly<Record<string, Shell>> = {
  bash: { script: bash, install: sourcedBy('.bashrc', '.pg-lockstep.bash', 'bash') },
  zsh: { script: zsh, install: sourcedBy('.zshrc', '.pg-lockstep.zsh', 'zsh') },
  fish: {
    script: fish,
    install:
      'mkdir -p ~/.config/fish/conf.d && npx pg-lockstep completion fish > ~/.config/fish/conf.d/pg-lockstep.fish',
  },
}

/** The scripts are made from the table of commands, so they cannot forget one; they ask nothing of us when they run. */
export function completionCommand(commands: () => readonly Command[]): Command {
  const names = Object.keys(SHELLS)
  return {
    name: 'completion',
    summary: 'Print shell completion, or the command that installs it',
    usage: `[${names.join('|')}]`,
    details: `Without a shell, it prints one command for the shell in $SHELL. Run that command to install completion, and again after
an update:

  eval "$(npx pg-lockstep completion)"

With a shell, it prints the script itself.`,
    examples: [
      { line: 'pg-lockstep completion', does: 'print the command that installs it' },
      { line: 'pg-lockstep completion zsh', does: 'print the script for zsh' },
    ],
    options: ['json'],
    words: names,
    async run({ words }) {
      const [wanted] = words
      const shell = wanted ?? basename(process.env['SHELL'] ?? '')
      const found = SHELLS[shell]
      if (found === undefined)
        throw new UsageError('The shell is unknown.', `Write \`pg-lockstep completion ${names.join('|')}\`.`)
      if (wanted === undefined) {
        const line = found.install
        return { exitCode: 0, json: { ok: true, command: 'completion', shell, line }, text: () => line }
      }
      const text = found.script(commands())
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
      const { value, summary, choices } = optionOf(command.name, option)
      const wanted = value === '' ? '' : `:${value}:${choices === undefined ? '' : `(${choices.join(' ')})`}`
      return `'--${option}[${quoted(summary).replaceAll(':', '\\:')}]${wanted}'`
    })
    const words = command.words.length === 0 ? [] : [`'1:what:(${command.words.join(' ')})'`]
    return `    ${command.name}) _arguments ${[...words, ...flags, "'--help[about it]'"].join(' ')} ;;`
  })
  return `#compdef ${BINS.join(' ')}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
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

function fish(commands: readonly Command[]): string {
  const lines = commands.flatMap((command) => {
    const { name, summary, words, options } = command
    const seen = `'__fish_seen_subcommand_from ${name}'`
    return [
      `-n __fish_use_subcommand -a ${name} -d '${escaped(summary)}'`,
      ...(words.length === 0 ? [] : [`-n ${seen} -a '${words.join(' ')}'`]),
      ...options.map((option) => {
        const { type, summary: means, choices } = optionOf(name, option)
        const value = type === 'boolean' ? '' : ` -r${choices === undefined ? '' : ` -a '${choices.join(' ')}'`}`
        return `-n ${seen} -l ${option}${value} -d '${escaped(means)}'`
      }),
    ]
  })
  const all = [...lines, `-l help -s h -d 'about it'`, `-n __fish_use_subcommand -l version -s v -d 'the version'`]
  return BINS.flatMap((bin) => [`complete -c ${bin} -f`, ...all.map((line) => `complete -c ${bin} ${line}`)]).join('\n')
}

/** For a place between single quotes of bash and zsh. */
function quoted(text: string): string {
  return text.replaceAll("'", "'\\''")
}

/** For a place between single quotes of fish. */
function escaped(text: string): string {
  return text.replaceAll(/['\\]/g, String.raw`\$&`)
}
