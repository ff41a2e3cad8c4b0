import { randomUUID } from 'node:crypto'

const TIMEOUT_MS = 15_000

/** Sends requests, and ignores their outcome. */
export class Client {
  readonly #origin: string
  readonly #headers: Readonly<Record<string, string>>
  readonly #signal: AbortSignal

  constructor(origin: string, token: string | undefined, signal: AbortSignal) {
    this.#origin = origin
    this.#headers = {
      'content-type': 'application/json',
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
    }
    this.#signal = signal
  }

  /** The status; 0 where there was no answer. */
  async post(path: string, body?: object): Promise<number> {
    try {
      const response = await fetch(`${this.#origin}${path}`, {
        method: 'POST',
        headers: { ...this.#headers, 'idempotency-key': randomUUID() },
        ...(body !== undefined && { body: JSON.stringify(body) }),
        signal: AbortSignal.any([this.#signal, AbortSignal.timeout(TIMEOUT_MS)]),
      })
      await response.arrayBuffer()
      return response.status
    } catch {
      return 0
    }
  }
}
