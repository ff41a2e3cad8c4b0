/** One complete message of PostgreSQL's protocol 3, without its content but for its type. */
export type MessageType = string

const sslRequest = 80877103
const gssRequest = 80877104
const cancelRequest = 80877102

/** Types of what has no type byte on the wire. */
export const untyped = { startup: 'startup', encryption: 'encryption', cancel: 'cancel', answer: 'answer' } as const

/**
 * Cuts a stream of chunks into messages: a chunk may hold several and end in the middle of one, even in the middle of
 * its length. Content is skipped, not kept.
 */
export class Framing {
  readonly #header: number[] = []
  #skip = 0
  #phase: 'start' | 'answer' | 'messages' | 'opaque'

  constructor(side: 'frontend' | 'backend') {
    this.#phase = side === 'frontend' ? 'start' : 'messages'
  }

  /** To a backend stream: a bare byte follows, its yes or no to a request for encryption. */
  expectAnswer(): void {
    if (this.#phase === 'messages') this.#phase = 'answer'
  }

  /** To both streams: what follows is encrypted and cannot be read. */
  goOpaque(): void {
    this.#phase = 'opaque'
  }

  /** The messages whose last byte is in this chunk, in order; an answer to a request for encryption by its letter. */
  push(chunk: Uint8Array): MessageType[] {
    const complete: MessageType[] = []
    let at = 0
    while (at < chunk.length && this.#phase !== 'opaque') {
      if (this.#skip > 0) {
        const step = Math.min(this.#skip, chunk.length - at)
        this.#skip -= step
        at += step
        if (this.#skip === 0) complete.push(this.#finish())
        continue
      }
      const byte = chunk[at++] ?? 0
      if (this.#phase === 'answer') {
        this.#phase = 'messages'
        complete.push(`${untyped.answer} ${String.fromCharCode(byte)}`)
        continue
      }
      this.#header.push(byte)
      // The opening packet has no type, and its length is followed by a code that tells what it is.
      const wanted = this.#phase === 'start' ? 8 : 5
      if (this.#header.length < wanted) continue
      const length = this.#word(this.#phase === 'start' ? 0 : 1)
      this.#skip = length - (this.#phase === 'start' ? 8 : 4)
      if (this.#skip <= 0) {
        this.#skip = 0
        complete.push(this.#finish())
      }
    }
    return complete
  }

  #finish(): MessageType {
    const type = this.#phase === 'start' ? this.#opening() : String.fromCharCode(this.#header[0] ?? 0)
    this.#header.length = 0
    return type
  }

  #opening(): MessageType {
    const code = this.#word(4)
    if (code === sslRequest || code === gssRequest) return untyped.encryption
    this.#phase = 'messages'
    return code === cancelRequest ? untyped.cancel : untyped.startup
  }

  #word(at: number): number {
    const [a = 0, b = 0, c = 0, d = 0] = this.#header.slice(at, at + 4)
    return ((a << 24) | (b << 16) | (c << 8) | d) >>> 0
  }
}
