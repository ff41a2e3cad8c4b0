import type { Socket } from 'node:net'

/** One request, or one answer. */
export interface Frame {
  /** As it came, its length included. */
  readonly whole: Buffer
  readonly correlation: number
  /** Of a request. */
  readonly api: number
  readonly version: number
  readonly body: Buffer
}

/** From these versions on a request's header has tagged fields behind the client's name. */
const TAGGED_FROM = new Map([
  [22, 2],
  [24, 3],
  [26, 3],
  [0, 9],
])

/** Cuts what a socket gets into frames. */
export function frames(socket: Socket, kind: 'request' | 'answer', take: (frame: Frame) => void): void {
  let rest = Buffer.alloc(0)
  socket.on('data', (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk])
    while (rest.length >= 4 && rest.length >= 4 + rest.readInt32BE(0)) {
      const length = 4 + rest.readInt32BE(0)
      const whole = Buffer.from(rest.subarray(0, length))
      rest = rest.subarray(length)
      take(kind === 'request' ? requestOf(whole) : { ...NO_REQUEST, whole, correlation: whole.readInt32BE(4) })
    }
  })
}

const NO_REQUEST = { api: -1, version: -1, body: Buffer.alloc(0) }

function requestOf(whole: Buffer): Frame {
  const fields = new Fields(whole, 4)
  const [api, version, correlation] = [fields.int16(), fields.int16(), fields.int32()]
  fields.text()
  if (version >= (TAGGED_FROM.get(api) ?? Infinity)) fields.skip(1)
  return { whole, api, version, correlation, body: whole.subarray(fields.at) }
}

/** Kafka's own notation, read from front to back. */
export class Fields {
  at: number
  readonly #buffer: Buffer

  constructor(buffer: Buffer, at = 0) {
    this.#buffer = buffer
    this.at = at
  }

  skip(count: number): void {
    this.at += count
  }

  int8(): number {
    return this.#buffer.readInt8(this.at++)
  }

  int16(): number {
    this.at += 2
    return this.#buffer.readInt16BE(this.at - 2)
  }

  int32(): number {
    this.at += 4
    return this.#buffer.readInt32BE(this.at - 4)
  }

  int64(): bigint {
    this.at += 8
    return this.#buffer.readBigInt64BE(this.at - 8)
  }

  /** Empty where it is null. */
  text(): string {
    return this.#take(Math.max(0, this.int16())).toString()
  }

  /** Of the later versions: its length has one added, and fits into a byte here. */
  compactText(): string {
    return this.#take(Math.max(0, this.int8() - 1)).toString()
  }

  bytes(): Buffer {
    return this.#take(Math.max(0, this.int32()))
  }

  #take(length: number): Buffer {
    this.at += length
    return this.#buffer.subarray(this.at - length, this.at)
  }
}

/** A frame of what stands in it. */
export function withLength(content: Buffer): Buffer {
  const length = Buffer.alloc(4)
  length.writeInt32BE(content.length)
  return Buffer.concat([length, content])
}
