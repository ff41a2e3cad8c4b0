/**
 * The process in which the race of the start page is run, apart from the service that shows it. It is started when it is needed, and ends when it
 * is asked to or when the process that started it is gone (its standard input is its lifeline). Then workers and server end as well.
 */
import { fileURLToPath } from 'node:url'
import type { FromStage, ToStage } from './messages.ts'
import { Stage } from './stage.ts'

/** From here, also where the JavaScript runs from `.built`. */
const ROOT = import.meta.url.endsWith('.js') ? '../../../' : '../../'

const send = (message: FromStage): void => {
  if (process.connected) process.send?.(message, () => undefined)
}

// An interrupt at the terminal reaches all processes: the service decides what follows.
for (const name of ['SIGINT', 'SIGHUP', 'SIGTERM'] as const) process.on(name, () => undefined)

// What initdb makes is kept beside the data of the desk: the next start copies it.
process.env['LOCKSTEP_DATA_TEMPLATES'] ??= fileURLToPath(new URL(`${ROOT}.lockstep/data-templates`, import.meta.url))

const opening = Stage.open((state) => send({ state }))

process.on('message', (message: ToStage) => {
  void opening.then(async (stage) => {
    if ('close' in message) {
      await stage.close()
      process.exit(0)
    }
    const { press } = message
    const forMs = press.seconds === undefined ? undefined : press.seconds * 1000
    if ('fault' in press) await stage.strike(press.card, press.fault, { forMs, freezeMs: press.freezeMs })
    else stage.hammer(press.card, press.hammer, forMs)
  })
})

await opening
send({ ready: true })
