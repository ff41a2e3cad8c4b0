import type { Command } from './command.ts'
import { completionCommand } from './completion.ts'
import { doctorCommand } from './doctor.ts'
import { helpFor } from './help.ts'
import { leasesCommand } from './leases.ts'
import { locksCommand } from './locks.ts'
import { migrateCommand } from './migrate.ts'
import { outboxCommand } from './outbox.ts'
import { proveCommand } from './prove.ts'
import { rolloutCommand } from './rollout.ts'

const helpCommand: Command = {
  name: 'help',
  summary: 'this list, or what one command does',
  usage: '[COMMAND]',
  details: 'Says what there is.',
  options: [],
  words: ['migrate', 'doctor', 'locks', 'leases', 'outbox', 'rollout', 'prove', 'completion', 'help'],
  async run({ words }) {
    const text = helpFor(commands, words[0])
    return { exitCode: 0, json: { ok: true, text }, text: () => text }
  },
}

/** Every command, in the order of help. */
export const commands: readonly Command[] = [
  migrateCommand,
  doctorCommand,
  locksCommand,
  leasesCommand,
  outboxCommand,
  rolloutCommand,
  proveCommand,
  completionCommand(() => commands),
  helpCommand,
]
