import { InvalidOptionError } from '../errors.ts'

/** A client of ioredis: a `Redis` or a `Cluster`. */
export interface IoRedisClient {
  call(command: string, args: (string | Buffer)[]): Promise<unknown>
  readonly isCluster?: boolean
  pipeline?(): IoRedisPipeline
}

/** What ioredis sends at once. */
export interface IoRedisPipeline {
  call(command: string, args: (string | Buffer)[]): unknown
  exec(): Promise<[error: Error | null, result: unknown][] | null>
}

/** A client or a pool of node-redis. */
export interface NodeRedisClient {
  sendCommand(args: (string | Buffer)[]): Promise<unknown>
}

/** The caller's own client, connected by the caller. The sink never closes it. */
export type RedisClient = IoRedisClient | NodeRedisClient

type Args = (string | Buffer)[]

/** Sends commands in one write, and returns the answer to each: an Error for one that failed. Never throws. */
export type SendCommands = (
  command: string,
  calls: readonly Args[],
  answered: (index: number, answer: unknown) => void,
) => void

/** ioredis has a sendCommand() as well, for commands of its own. */
export function commandSender(client: Partial<IoRedisClient & NodeRedisClient> | undefined): SendCommands {
  if (typeof client?.call === 'function') {
    const each = oneByOne(async (command, args) => (client as IoRedisClient).call(command, args))
    // It writes each command by itself, and a Redis that syncs its file then syncs for each: a pipeline is one write. One of a
    // cluster takes keys of a single node only.
    return typeof client.pipeline === 'function' && client.isCluster !== true
      ? pipelined(() => (client as Required<IoRedisClient>).pipeline(), each)
      : each
  }
  if (typeof client?.sendCommand === 'function') {
    return oneByOne(async (command, args) => (client as NodeRedisClient).sendCommand([command, ...args]))
  }
  throw new InvalidOptionError('client is no client of Redis.', {
    advice: 'Pass a client of ioredis, or a connected one of node-redis.',
  })
}

function oneByOne(ask: (command: string, args: Args) => Promise<unknown>): SendCommands {
  return (command, calls, answered) => {
    calls.forEach((args, index) => {
      ask(command, args).then(
        (answer) => answered(index, answer),
        (error: unknown) => answered(index, asError(error)),
      )
    })
  }
}

function pipelined(open: () => IoRedisPipeline, each: SendCommands): SendCommands {
  return (command, calls, answered) => {
    if (calls.length === 1) return each(command, calls, answered)
    const all = async (): Promise<[Error | null, unknown][]> => {
      const pipeline = open()
      for (const args of calls) pipeline.call(command, args)
      return (await pipeline.exec()) ?? []
    }
    all().then(
      (results) => calls.forEach((_, index) => answered(index, results[index]?.[0] ?? results[index]?.[1])),
      (error: unknown) => calls.forEach((_, index) => answered(index, asError(error))),
    )
  }
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error))
}
