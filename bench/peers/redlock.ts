import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'

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

interface Peers {
  connect(port: number): RedisClient
  redlock(client: RedisClient): RedlockClient
}

/** The peers are installed here and nowhere else, when they are first compared with. */
export function redlockPeers(): Peers {
  const directory = fileURLToPath(new URL('.', import.meta.url))
  if (!existsSync(`${directory}/node_modules/redlock`)) {
    const { status } = spawnSync('npm', ['ci'], { cwd: directory, stdio: ['ignore', 2, 2] })
    if (status !== 0) throw new Error('npm ci failed in bench/peers')
  }
  const load = createRequire(import.meta.url)
  const { Redis } = load('ioredis') as { Redis: new (options: object) => RedisClient }
  const { default: Redlock } = load('redlock') as {
    default: new (clients: object[], settings: object) => RedlockClient
  }
  return {
    connect: (port) => new Redis({ host: '127.0.0.1', port }),
    redlock(client) {
      // Its own defaults, but it never gives up.
      const lock = new Redlock([client], { retryCount: -1 })
      lock.on('error', () => undefined)
      return lock
    },
  }
}
