/**
 * Kafka's rule about transactional ids, in front of a mock that does not know it: only the newest producer of an id may write. A proxy
 * that reads requests and answers, remembers who was the last to open a producer with an id, and refuses the others. It also
 * remembers which messages were committed, which the mock does not tell apart.
 */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { Fields, type Frame, frames, withLength } from './wire.ts'

export interface FencingProxy {
  readonly address: string
  /** What a reader of committed messages sees: `<id> <fence>`. */
  readonly committed: ReadonlySet<string>
  /** Transactions that were committed. */
  readonly commits: number
  /** Requests that were refused because a newer producer has the id. */
  readonly fenced: number
  close(): Promise<void>
}

const PRODUCE = 0
const INIT_PRODUCER_ID = 22
const ADD_PARTITIONS = 24
const END_TRANSACTION = 26
const INVALID_PRODUCER_EPOCH = 47
const PRODUCER_FENCED = 90
const NONE = -1n
/** A record's id and fence are adjacent, each behind its length. */
const FACTS = /lockstep-id[^]([0-9a-f-]{36})[^]lockstep-fence[^](\d+)/g
/** Of a batch of records: where it says whose it is. */
const PRODUCER_ID_AT = 43

/** What was asked, for when its answer comes. */
interface Asked {
  readonly api: number
  readonly id: string
  readonly stale: boolean
}

export async function startFencing(broker: string, options: { readonly fence: boolean }): Promise<FencingProxy> {
  const [host, port] = broker.split(':') as [string, string]
  const newest = new Map<string, bigint>()
  const written = new Map<bigint, string[]>()
  const committed = new Set<string>()
  const sockets = new Set<Socket>()
  let [commits, fenced] = [0, 0]

  const isStale = (id: string, producer: bigint): boolean => {
    const stale = options.fence && newest.has(id) && producer !== NONE && newest.get(id) !== producer
    if (stale) fenced++
    return stale
  }

  /** What is to be remembered about a request; a buffer is the answer to one that does not continue. */
  function read({ api, version, correlation, body }: Frame): Asked | Buffer | undefined {
    const fields = new Fields(body)
    if (api === INIT_PRODUCER_ID) {
      const id = version >= 2 ? fields.compactText() : fields.text()
      fields.skip(4)
      return { api, id, stale: isStale(id, version >= 3 ? fields.int64() : NONE) }
    }
    if (api === ADD_PARTITIONS || api === END_TRANSACTION) {
      const id = fields.text()
      const producer = fields.int64()
      fields.skip(2)
      const stale = isStale(id, producer)
      if (api === ADD_PARTITIONS) return { api, id, stale }
      const commit = fields.int8() === 1
      const records = written.get(producer) ?? []
      written.delete(producer)
      if (!commit || stale) return { api, id, stale }
      for (const record of records) committed.add(record)
      commits++
      return { api, id, stale }
    }
    return api === PRODUCE ? readProduce(fields, correlation) : undefined
  }

  function readProduce(fields: Fields, correlation: number): Buffer | undefined {
    const id = fields.text()
    fields.skip(6)
    let refused = false
    const answer: { topic: string; partitions: number[] }[] = []
    for (let topics = fields.int32(); topics > 0; topics--) {
      const topic = fields.text()
      const partitions: number[] = []
      for (let count = fields.int32(); count > 0; count--) {
        partitions.push(fields.int32())
        const records = fields.bytes()
        const producer = records.readBigInt64BE(PRODUCER_ID_AT)
        if (id !== '' && isStale(id, producer)) refused = true
        const list = written.get(producer) ?? []
        for (const [, event, fence] of records.toString('latin1').matchAll(FACTS)) list.push(`${event} ${fence}`)
        // Without a transaction everything is committed as it comes.
        if (id === '') for (const record of list) committed.add(record)
        else if (!refused) written.set(producer, list)
      }
      answer.push({ topic, partitions })
    }
    return refused ? refusedProduce(correlation, answer) : undefined
  }

  const advertised = Buffer.alloc(13)
  advertised.write('127.0.0.1')
  advertised.writeInt32BE(Number(port), 9)

  const listener = createServer({ noDelay: true }, (client) => {
    const server = connect({ host, port: Number(port), noDelay: true })
    const asked = new Map<number, Asked>()
    const end = (): void => {
      client.destroy()
      server.destroy()
    }
    for (const socket of [client, server]) {
      sockets.add(socket)
      socket.on('error', end)
      socket.on('close', () => (sockets.delete(socket), end()))
    }
    frames(client, 'request', (frame) => {
      const told = read(frame)
      if (Buffer.isBuffer(told)) client.write(told)
      else {
        if (told !== undefined) asked.set(frame.correlation, told)
        server.write(frame.whole)
      }
    })
    frames(server, 'answer', ({ correlation, whole }) => {
      const question = asked.get(correlation)
      asked.delete(correlation)
      if (question !== undefined) change(whole, question)
      // The brokers announce their addresses: all clients have to connect through here.
      for (let at = whole.indexOf(advertised); at >= 0; at = whole.indexOf(advertised, at + 13)) {
        whole.writeInt32BE(proxyPort, at + 9)
      }
      client.write(whole)
    })
  })

  /** Behind length and number of an answer, always the throttle time first. */
  function change(whole: Buffer, { api, id, stale }: Asked): void {
    if (api === INIT_PRODUCER_ID) {
      // Its header has tagged fields, of which there are none.
      const errorAt = 8 + 1 + 4
      if (stale) whole.writeInt16BE(PRODUCER_FENCED, errorAt)
      else if (whole.readInt16BE(errorAt) === 0) newest.set(id, whole.readBigInt64BE(errorAt + 2))
    } else if (stale && api === END_TRANSACTION) whole.writeInt16BE(INVALID_PRODUCER_EPOCH, 12)
    else if (stale && api === ADD_PARTITIONS) {
      const fields = new Fields(whole, 12)
      for (let topics = fields.int32(); topics > 0; topics--) {
        fields.text()
        for (let count = fields.int32(); count > 0; count--) {
          fields.skip(4)
          whole.writeInt16BE(INVALID_PRODUCER_EPOCH, fields.at)
          fields.skip(2)
        }
      }
    }
  }

  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const { port: proxyPort } = listener.address() as AddressInfo
  return {
    address: `127.0.0.1:${proxyPort}`,
    committed,
    get commits() {
      return commits
    },
    get fenced() {
      return fenced
    },
    async close() {
      const closed = once(listener, 'close')
      listener.close()
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}

/** The answer of a broker to a producer that was fenced, as of version 5 to 8. */
function refusedProduce(correlation: number, topics: readonly { topic: string; partitions: number[] }[]): Buffer {
  const parts: Buffer[] = []
  const int = (size: 2 | 4, value: number): void => {
    const buffer = Buffer.alloc(size)
    buffer.writeIntBE(value, 0, size)
    parts.push(buffer)
  }
  int(4, correlation)
  int(4, topics.length)
  for (const { topic, partitions } of topics) {
    int(2, Buffer.byteLength(topic))
    parts.push(Buffer.from(topic))
    int(4, partitions.length)
    for (const partition of partitions) {
      int(4, partition)
      int(2, INVALID_PRODUCER_EPOCH)
      // Offset, time and first offset: unknown.
      parts.push(Buffer.alloc(24, 0xff))
    }
  }
  int(4, 0)
  return withLength(Buffer.concat(parts))
}
