import type { Command } from './command.ts'
import { capacityCommand } from './capacity.ts'
import { completionCommand } from './completion.ts'
import { consumersCommand } from './consumers.ts'
import { consoleCommand } from './console.ts'
import { devCommand } from './dev.ts'
import { doctorCommand } from './doctor.ts'
import { grantsCommand } from './grants.ts'
import { guardCommand } from './guard.ts'
import { helpAsJson, helpFor } from './help.ts'
import { initCommand } from './init.ts'
import { leasesCommand } from './leases.ts'
import { locksCommand } from './locks.ts'
import { migrateCommand } from './migrate.ts'
import { outboxCommand } from './outbox.ts'
import { proveCommand } from './prove.ts'
import { rolloutCommand } from './rollout.ts'
import { statusCommand } from './status.ts'

const helpCommand: Command = {
  name: 'help',
  summary: 'Show this list, or help for one command',
  usage: '[COMMAND]',
  details: 'Shows the list of commands, or the usage, options and examples of one command.',
  examples: [
    { line: 'pg-lockstep help', does: 'list the commands' },
    { line: 'pg-lockstep help outbox', does: 'help for one command' },
  ],
  options: ['json'],
  // Read on demand: the list is made below.
  get words() {
    return commands.map(({ name }) => name)
  },
  async run({ words }) {
    const json = { ok: true, command: 'help', ...helpAsJson(commands, words[0]) }
    return { exitCode: 0, json, text: ({ columns }) => helpFor(commands, words[0], columns) }
  },
}

/** Every command, in the order of help. */
export const commands: readonly Command[] = [
  initCommand,
  statusCommand,
  migrateCommand,
  doctorCommand,
  grantsCommand,
  locksCommand,
  leasesCommand,
  outboxCommand,
  consumersCommand,
  rolloutCommand,
  guardCommand,
  consoleCommand,
  devCommand,
  proveCommand,
  capacityCommand,
  completionCommand(() => commands),
  helpCommand,
]
