import { setMaxListeners } from 'node:events'
import { Agent } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import type { System } from '../desk.ts'
import { type Answer, sendOnce } from './sendOnce.ts'
import { Tally } from './tally.ts'

export type SystemName = System['name']

/** What a client knows in the end. `unknown`: it has given up without an answer. */
export type Outcome =
  | { readonly kind: 'acknowledged'; readonly status: number; readonly body: Record<string, unknown> }
  | { readonly kind: 'refused'; readonly status: number; readonly code: string }
  | { readonly kind: 'unknown' }

export interface Sending {
  readonly path: string
  readonly body?: unknown
  /** Sent with every try: the desk does it once. */
  readonly idempotencyKey?: string
}

/** A try that is in progress, and how it has ended. */
export interface Try {
  /** The process of the desk that has it, once that is known. */
  pid: number | undefined
  ended: 'answered' | 'cut' | undefined
}

const MOST_TRIES = 12
const PATIENCE_MS = 45_000
const FIRST_PAUSE_MS = 100
const LONGEST_PAUSE_MS = 2000
const MOST_CONNECTIONS = 256
/** One of so many requests comes on a connection of its own, which has to be accepted first. */
const OWN_CONNECTION_EVERY = 4
/** A request works on it: perhaps our own try that got no answer. */
const AT_IT = new Set(['busy', 'running', 'opening', 'closing'])

/**
 * A client that asks again where its connection was closed without an answer. It has no timeout: a request that is neither answered nor reset
 * keeps it waiting, and that is to be seen.
 */
export class Client {
  readonly origin: string
  readonly #agent = new Agent({ keepAlive: true, maxSockets: MOST_CONNECTIONS })
  readonly #tallies = new Map<SystemName, Tally>()
  readonly #underWay = new Set<Try>()
  /** Why requests had to be sent again, and how often. */
  readonly retries = new Map<string, number>()
  /** When the last try ended, as of performance.now(). */
  lastEnd = performance.now()
  readonly #abandoned = new AbortController()
  #tries = 0

  constructor(origin: string) {
    this.origin = origin
    setMaxListeners(0, this.#abandoned.signal)
  }

  /** The tries that have no answer yet. */
  get underWay(): readonly Try[] {
    return [...this.#underWay]
  }

  tally(system: SystemName): Tally {
    const tally = this.#tallies.get(system) ?? new Tally()
    this.#tallies.set(system, tally)
    return tally
  }

  /** Sends a request until there is an answer to it, or it gives up. */
  async post(system: SystemName, sending: Sending): Promise<Outcome> {
    const tally = this.tally(system)
    tally.requests++
    const outcome = await this.#untilAnswered(tally, sending)
    tally[outcome.kind]++
    return outcome
  }

  /** Clients that still wait for an answer give up. */
  close(): void {
    this.#abandoned.abort()
    this.#agent.destroy()
  }

  async #untilAnswered(tally: Tally, sending: Sending): Promise<Outcome> {
    const deadline = performance.now() + PATIENCE_MS
    let pauseMs = FIRST_PAUSE_MS
    for (let tries = 1; ; tries++) {
      const answer = await this.#try('POST', sending)
      const outcome = outcomeOf(answer, tries)
      if (outcome !== undefined) return outcome
      if (tries === 1) tally.retried++
      const why = 'body' in answer ? `${answer.status} ${codeOf(answer.body)}` : answer.status
      this.retries.set(why, (this.retries.get(why) ?? 0) + 1)
      if (tries === MOST_TRIES || performance.now() > deadline || this.#abandoned.signal.aborted)
        return { kind: 'unknown' }
      await sleep(pauseMs)
      pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)
    }
  }

  async #try(method: 'GET' | 'POST', sending: Sending): Promise<Answer> {
    const { path, body, idempotencyKey } = sending
    const attempt: Try = { pid: undefined, ended: undefined }
    this.#underWay.add(attempt)
    const isOnItsOwn = ++this.#tries % OWN_CONNECTION_EVERY === 0
    const answer = await sendOnce({
      method,
      url: this.origin + path,
      ...(!isOnItsOwn && { agent: this.#agent }),
      abandoned: this.#abandoned.signal,
      sentTo: (pid) => (attempt.pid = pid),
      ...(body !== undefined && { body }),
      ...(idempotencyKey !== undefined && { headers: { 'idempotency-key': idempotencyKey } }),
    })
    attempt.ended = typeof answer.status === 'number' ? 'answered' : 'cut'
    this.lastEnd = performance.now()
    this.#underWay.delete(attempt)
    return answer
  }
}

/** Undefined where nothing is known, and it has to be sent again. */
export function outcomeOf(answer: Answer, tries: number): Outcome | undefined {
  if (!('body' in answer) || answer.status >= 500) return undefined
  const { status, body } = answer
  if (status < 300) return { kind: 'acknowledged', status, body }
  const code = codeOf(body)
  // At the first try another request works on it: nothing was done. Later it may be our own request that is.
  return tries > 1 && AT_IT.has(code) ? undefined : { kind: 'refused', status, code }
}

function codeOf({ code }: Record<string, unknown>): string {
  return typeof code === 'string' ? code : 'without a code'
}
