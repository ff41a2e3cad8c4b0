import type { OutboxEvent, Sink } from 'pg-lockstep'
import type { CloudEventsOptions } from 'pg-lockstep/redis'
import { byStream, type ReceivedEvent } from 'pg-lockstep/sinks'

/** A real broker as the tests, the attacks and the benches use it. */
export interface Broker {
  readonly name: string
  /** Starts a server of its own on 127.0.0.1, in a directory of its own. */
  run(): Promise<RunningBroker>
  /** A sink on a client of its own, as another process has it. The address may lead through a proxy. */
  connect(address: string, options: ConnectOptions): Promise<Connected>
  /**
   * What a user would write without us: the client's own fastest loop over the same messages, with the same order per key and the
   * same confirmation.
   */
  byHand(address: string): Promise<ByHand>
}

export interface RunningBroker {
  /** host:port */
  readonly address: string
  /** `kill -9`, or as near to it as the broker goes. */
  kill(): Promise<void>
  /** Starts it again at the same address, with what it had. Comes back when it takes messages. */
  start(): Promise<void>
  /** All that it has of a topic, in its order: within a key at least. */
  received(topic: string): Promise<readonly ReceivedEvent[]>
  /** The headers of the same messages, as they are there. Left out where an event is no message. */
  headers?(topic: string): Promise<readonly RawHeaders[]>
  stop(): Promise<void>
}

export type RawHeaders = Readonly<Record<string, string>>

export interface ConnectOptions {
  /** The sink's timeout. */
  readonly timeoutMs: number
  /** The sink's option, where it has one. */
  readonly cloudEvents?: CloudEventsOptions | undefined
}

export interface Connected {
  readonly sink: Sink
  /** Closes the sink and ends its client. */
  end(): Promise<void>
}

export interface ByHand {
  send(events: readonly OutboxEvent[]): Promise<void>
  end(): Promise<void>
}

/** The option for a sink, left out where it is not wanted. */
export function cloudEventsOf({ cloudEvents }: ConnectOptions): { readonly cloudEvents?: CloudEventsOptions } {
  return cloudEvents === undefined ? {} : { cloudEvents }
}

/** The events of each stream, in their order. */
export function streamsOf(events: readonly OutboxEvent[]): OutboxEvent[][] {
  return [...byStream(events).values()].map((places) => places.map((place) => events[place] as OutboxEvent))
}
