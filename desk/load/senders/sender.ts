import type { Database, Finding } from '../../desk.ts'
import type { Client, SystemName } from '../client.ts'
import type { Random } from '../../../proofs/seed.ts'

/** What every sender works with. */
export interface SenderContext {
  readonly client: Client
  readonly random: Random
  /** The share of requests that meet on hot keys. */
  readonly contention: number
  /** Begins the names of everything that this run makes: runs on one desk do not meet. */
  readonly prefix: string
  /** Where a person can trade by hand. */
  readonly exchangeUrl: string
}

/** Requests of one system, and what its clients remember of them. */
export interface Sender {
  readonly system: SystemName
  /** How often it has its turn, compared with the others. */
  readonly weight: number
  /** Makes what the requests work on. */
  prepare(): Promise<void>
  /** Sends one request, and remembers the outcome. */
  send(): Promise<void>
  /** Holds the memory against the database. */
  compare(database: Database): Promise<Finding[]>
}

/** Creates something that must be there before the load begins. */
export async function must(client: Client, system: SystemName, path: string, body: unknown): Promise<void> {
  const outcome = await client.post(system, { path, body })
  if (outcome.kind !== 'acknowledged') throw new Error(`${path} was ${outcome.kind}: ${JSON.stringify(outcome)}`)
}

/** A number that no other request of this run has. */
export class UniqueNumbers {
  #next: number

  constructor(first = 1000) {
    this.#next = first
  }

  next(): number {
    return this.#next++
  }
}

export function names(prefix: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${prefix}${index}`)
}
