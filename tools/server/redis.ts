import { findProgram } from './findProgram.ts'
import { greets } from './greeting.ts'
import { type RestartableServer, startRestartable } from './restartableServer.ts'

export interface RedisOptions {
  /** Whether it writes all to disk before it answers, and has it again after a restart. Default: it keeps nothing. */
  readonly appendOnly?: boolean
  /** More arguments, as on the command line. */
  readonly args?: readonly string[]
}

const PROGRAM = 'redis-server'

export function redisAvailable(): boolean {
  return findProgram(PROGRAM) !== undefined
}

/** A Redis of our own. */
export function startRedis({ appendOnly, args = [] }: RedisOptions = {}): Promise<RestartableServer> {
  const keeping = appendOnly === true ? ['--appendonly', 'yes', '--appendfsync', 'always'] : []
  return startRestartable({
    name: PROGRAM,
    args: (port, directory) => {
      const own = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', directory]
      return [...own, ...keeping, ...args]
    },
    isReady: (port) => greets(port, '+PONG', 'PING\r\n'),
  })
}
