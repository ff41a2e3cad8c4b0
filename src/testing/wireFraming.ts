/** One complete message of PostgreSQL's protocol 3. */
export interface Message {
  /** Its letter, or one of `untyped`. */
  readonly type: string
  /** As much of its content as `KEPT_BYTES` says for its type. */
  readonly content: Buffer
}

const sslRequest = 80877103
const gssRequest = 80877104
const cancelRequest = 80877102

/** Types of what has no type byte on the wire. */
export const untyped = { startup: 'startup', encryption: 'encryption', cancel: 'cancel', answer: 'answer' } as const

/** What is kept of the content: texts of statements as a whole, of others the names in front; data is skipped. */
const KEPT_BYTES = {
  frontend: new Map([
    ['Q', Infinity],
    ['P', Infinity],
    ['B', 256],
    ['E', 256],
  ]),
  backend: new Map([
    ['C', 256],
    ['Z', 1],
  ]),
} as const

const NOTHING = Buffer.alloc(0)

/**
 * Cuts a stream of chunks into messages: a chunk may hold several and end in the middle of one, even in the middle of
 * its length.
 */
export class Framing {
  readonly #header: number[] = []
  readonly #kept: ReadonlyMap<string, number>
  #content: Buffer[] = []
  #keep = 0
  #skip = 0
  #phase: 'start' | 'answer' | 'messages' | 'opaque'

  constructor(side: 'frontend' | 'backend') {
    this.#phase = side === 'frontend' ? 'start' : 'messages'
    this.#kept = KEPT_BYTES[side]
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
  push(chunk: Uint8Array): Message[] {
    const complete: Message[] = []
    let at = 0
    while (at < chunk.length && this.#phase !== 'opaque') {
      if (this.#skip > 0) {
        const step = Math.min(this.#skip, chunk.length - at)
        const kept = Math.min(step, this.#keep)
        // A copy: the chunk's memory may be used again.
        if (kept > 0) this.#content.push(Buffer.from(chunk.subarray(at, at + kept)))
        this.#keep -= kept
        this.#skip -= step
        at += step
        if (this.#skip === 0) complete.push(this.#finish())
        continue
      }
      const byte = chunk[at++] ?? 0
      if (this.#phase === 'answer') {
        this.#phase = 'messages'
        complete.push({ type: `${untyped.answer} ${String.fromCharCode(byte)}`, content: NOTHING })
        continue
      }
      this.#header.push(byte)
      // The opening packet has no type, and its length is followed by a code that says what it is.
      const starting = this.#phase === 'start'
      if (this.#header.length < (starting ? 8 : 5)) continue
      const length = this.#word(starting ? 0 : 1)
      this.#skip = length - (starting ? 8 : 4)
      this.#keep = starting ? 0 : (this.#kept.get(String.fromCharCode(this.#header[0] ?? 0)) ?? 0)
      if (this.#skip <= 0) {
        this.#skip = 0
        complete.push(this.#finish())
      }
    }
    return complete
  }

  #finish(): Message {
    const type = this.#phase === 'start' ? this.#opening() : String.fromCharCode(this.#header[0] ?? 0)
    const [only] = this.#content
    const content = this.#content.length > 1 ? Buffer.concat(this.#content) : (only ?? NOTHING)
    this.#header.length = 0
    this.#content = []
    return { type, content }
  }

  #opening(): string {
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
