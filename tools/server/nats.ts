import { findProgram } from './findProgram.ts'
import { greets } from './greeting.ts'
import { type RestartableServer, startRestartable } from './restartableServer.ts'

const PROGRAM = 'nats-server'

export function natsAvailable(): boolean {
  return findProgram(PROGRAM) !== undefined
}

/** A NATS server of our own with JetStream. */
export function startNats(): Promise<RestartableServer> {
  return startRestartable({
    name: PROGRAM,
    args: (port, directory) => ['-a', '127.0.0.1', '-p', String(port), '-js', '-sd', directory],
    isReady: (port) => greets(port, 'INFO'),
  })
}
