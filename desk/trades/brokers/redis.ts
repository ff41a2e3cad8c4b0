import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { readRedisEntry, redisSink, redisStreamName } from 'pg-lockstep/redis'
import type { Desk, DeskEvents } from '../../desk.ts'
import { book, READER } from '../book.ts'
import { type Broker, TOPIC } from './broker.ts'

const BATCH = 200
/** How soon a reader that has read everything looks for new portfolios. */
const PAUSE_MS = 200
/** What the names of all portfolios' streams begin with. */
const PREFIX = redisStreamName({ topic: TOPIC, key: 'x' }).slice(0, -1)

/** Redis Streams: one for each portfolio. The number of an event is the id of its entry. */
export async function redis({ lockstep }: Desk, url: string): Promise<Broker> {
  const client = new Redis(url, { lazyConnect: true })
  // A lost connection is opened again; a caller that needs it meanwhile receives the error.
  client.on('error', () => {})
  await client.connect()
  return {
    sink: redisSink({ client }),
    async close() {
      client.disconnect()
    },
    /** It needs no cursor in Redis: the inbox knows the last number of each portfolio. */
    async read(signal) {
      const position = async (name: string): Promise<string> => {
        const reached = await lockstep.inbox.consumer(READER).position({ topic: TOPIC, key: name.slice(PREFIX.length) })
        return `${reached?.seq ?? 0}-0`
      }
      // A blocked read holds its connection up.
      const reader = client.duplicate()
      reader.on('error', () => {})
      const after = new Map<string, string>()
      try {
        while (!signal.aborted) {
          for (const name of await streams(reader)) if (!after.has(name)) after.set(name, await position(name))
          if (after.size === 0) {
            await sleep(PAUSE_MS, undefined, { signal }).catch(() => undefined)
            continue
          }
          const wanted = [...after.keys(), ...after.values()]
          const found = await reader.xreadBuffer('COUNT', BATCH, 'BLOCK', PAUSE_MS, 'STREAMS', ...wanted)
          for (const [name, entries] of found ?? []) {
            await book(
              lockstep,
              entries.map(([, fields]) => readRedisEntry<DeskEvents['trades']>(fields)),
            )
            const last = entries.at(-1)
            if (last !== undefined) after.set(name.toString(), last[0].toString())
          }
        }
      } finally {
        reader.disconnect()
      }
    },
  }
}

async function streams(client: Redis): Promise<string[]> {
  const found: string[] = []
  for await (const names of client.scanStream({ match: `${PREFIX}*`, type: 'stream', count: 1000 }))
    found.push(...(names as string[]))
  return found
}
