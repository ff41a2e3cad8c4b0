import { loadPeer } from '../harness/peers.ts'

/** The part of ioredis and redlock that the bench uses. */
export interface RedisClient {
  quit(): Promise<unknown>
}

export interface RedlockLock {
  release(): Promise<unknown>
}

export interface RedlockClient {
  acquire(names: string[], ttlMs: number): Promise<RedlockLock>
  on(event: 'error', listener: () => void): unknown
}

export interface RedlockPeer {
  connect(port: number): RedisClient
  redlock(client: RedisClient, settings?: object): RedlockClient
}

type RedlockClass = new (clients: object[], settings: object) => RedlockClient

/** Its own defaults, but it never gives up. */
export const REDLOCK_SETTINGS = { retryCount: -1 }

export async function redlockPeer(): Promise<RedlockPeer> {
  const { Redis } = await loadPeer<{ Redis: new (options: object) => RedisClient }>('ioredis')
  const loaded = await loadPeer<{ default: RedlockClass | { default: RedlockClass } }>('redlock')
  // What the package calls an ES module is CommonJS to some loaders.
  const Redlock = 'default' in loaded.default ? loaded.default.default : loaded.default
  return {
    connect: (port) => new Redis({ host: '127.0.0.1', port }),
    redlock(client, settings = REDLOCK_SETTINGS) {
      const lock = new Redlock([client], settings)
      lock.on('error', () => undefined)
      return lock
    },
  }
}
