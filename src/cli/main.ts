#!/usr/bin/env node
/**
 * The command line: `npx pg-lockstep <command>`.
 *
 * **Streams.** The answer goes to stdout, everything else to stderr. With `--json` stdout is one line with one object, also when
 * the command fails: `ok` says which. `outbox replay` fills stdout with events, `console` and `dev` tell there where they are: their
 * answer goes to stderr.
 *
 * **Without a command** it shows the status, where a database is named, and help elsewhere.
 *
 * **Exit codes** are in exitCodes.ts, from where help has them.
 *
 * **The driver** is the working directory's: what the doctor sees is then what the application there gets, and this package needs
 * none of its own.
 *
 * **An interrupt** ends a `--watch`, `console` and `dev` as they are meant to end, with 0, `outbox replay` after its batch, `prove`
 * after it has cleaned up, and every other command at once.
 * Closing the connection is all the tidying that is needed: a migration is one transaction, and the server rolls back one whose
 * client has gone.
 */
import { constants } from 'node:os'
import { interruptGently } from './interrupt.ts'
import { run } from './run.ts'

for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.on(name, () => {
    if (name === 'SIGINT' && interruptGently()) return
    process.stderr.write('\npg-lockstep: interrupted; what was not committed is rolled back.\n')
    process.exit(128 + constants.signals[name])
  })
}

// A reader that has seen enough, such as head, is no failure of ours.
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error
    process.exit()
  })
}

process.exitCode = await run(process.argv.slice(2))
