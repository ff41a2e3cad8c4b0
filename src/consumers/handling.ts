import { type EventContracts, nameOf, type ReadableEvent } from '../events/index.ts'
import type { InboxConsumer, InboxEvent } from '../inbox/index.ts'
import type { Transaction } from '../transactions/index.ts'
import { Applier, type ApplierPlan } from './applier.ts'
import type { HandlingPlan } from './consumerOptions.ts'
import type { EventHandler, ListHandler } from './handler.ts'

/** What a consumer needs of its Lockstep. */
export interface HandlingDependencies {
  readonly transaction: ApplierPlan<InboxEvent>['transaction']
  readonly inbox: InboxConsumer
  /** What the handler reads payloads by. */
  readonly contracts?: EventContracts | undefined
  /** As of an applier. */
  readonly durable: boolean
}

/** Puts handler and inbox together. */
export function applierOf<Event extends InboxEvent>(
  { transaction, inbox, contracts, durable }: HandlingDependencies,
  { handlesTombstones, isolation, timeoutMs, lists }: HandlingPlan<Event>,
  handler: EventHandler<Event> | ListHandler<Event>,
  start: (event: InboxEvent) => number,
): Applier<Event> {
  const unchecked = lists ? byLists(handler as ListHandler<Event>) : oneByOne(handler as EventHandler<Event>)
  const handle = contracts === undefined ? unchecked : underContracts(contracts, unchecked)
  const handlerFails = 'refused'
  return new Applier<Event>({
    transaction,
    inbox,
    handle,
    handlesTombstones,
    start,
    isolation,
    timeoutMs,
    handlerFails,
    durable,
  })
}

/** An event whose payload does not fit fails like one whose handler throws: down to the event that is to blame. */
function underContracts<Event extends InboxEvent>(
  contracts: EventContracts,
  handle: HandleMany<Event>,
): HandleMany<Event> {
  return (tx, events) =>
    handle(
      tx,
      events.map((event) => contracts.read(event as ReadableEvent) as unknown as Event),
    )
}

type HandleMany<Event> = (tx: Transaction, events: readonly Event[]) => Promise<void>

function oneByOne<Event>(handler: EventHandler<Event>): HandleMany<Event> {
  return async (tx, events) => {
    for (const event of events) await handler(event, tx)
  }
}

function byLists<Event extends InboxEvent>(handler: ListHandler<Event>): HandleMany<Event> {
  return async (tx, events) => {
    const lists = new Map<string, Event[]>()
    for (const event of events) {
      const list = lists.get(nameOf(event))
      if (list === undefined) lists.set(nameOf(event), [event])
      else list.push(event)
    }
    for (const list of lists.values()) await handler(list, tx)
  }
}
