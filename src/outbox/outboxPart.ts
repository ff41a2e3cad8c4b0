import { StreamNotDeclaredError } from '../errors.ts'
import { type EventToEnqueue, nameOf } from '../events/index.ts'
import type { Statement } from '../postgres/index.ts'
import {
  type KeptWork,
  type OpenTransaction,
  type Part,
  readsFresh,
  type Transaction,
  writeInCallersTransaction,
} from '../transactions/index.ts'
import { DeclaredStreams } from './declaredStreams.ts'
import { checkEventList, type EnqueuerSettings, OutboxEnqueuer } from './enqueuer.ts'
import type { PreparedEvent } from './event.ts'
import type { StreamNumbers } from './flush.ts'

/** The outbox as a part of transactions: the option `streams`, `tx.enqueue()` and `tx.enqueueMany()`. */
export const outboxPart: Part<OutboxEnqueuer, EnqueuerSettings> = {
  methods: {
    enqueue(this: OpenTransaction, event: EventToEnqueue): Promise<void> {
      return enqueueMany(this, [event])
    },
    enqueueMany(this: OpenTransaction, events: readonly EventToEnqueue[]): Promise<void> {
      return enqueueMany(this, events)
    },
  },
  install: (setup, options) => new OutboxEnqueuer(setup, options),
}

/** The events of a transaction, or of a savepoint: written right before COMMIT, when their streams are locked. */
class KeptEvents implements KeptWork {
  readonly #events: PreparedEvent[] = []
  readonly #enqueuer: OutboxEnqueuer
  readonly #numbers: StreamNumbers | undefined

  constructor(enqueuer: OutboxEnqueuer, numbers: StreamNumbers | undefined) {
    this.#enqueuer = enqueuer
    this.#numbers = numbers
  }

  add(events: readonly PreparedEvent[]): void {
    // One by one: spread into a call, a hundred thousand would overflow the stack.
    for (const event of events) this.#events.push(event)
  }

  statements(): readonly Statement[] {
    return this.#enqueuer.flush(this.#events, this.#numbers)
  }

  append(inner: KeptEvents): void {
    this.add(inner.#events)
  }

  committed(): void {
    if (this.#events.length > 0) this.#enqueuer.committed(this.#events)
  }
}

async function enqueueMany(tx: OpenTransaction, events: readonly EventToEnqueue[]): Promise<void> {
  tx.assertUsable()
  const enqueuer = tx.context.parts.of(outboxPart)
  checkEventList('enqueueMany()', events)
  const prepared = events.map((event: EventToEnqueue) => enqueuer.prepare(event))
  const numbers = tx.answerOf(DeclaredStreams)
  const undeclared = readsFresh(tx.isolation) ? undefined : prepared.find((each) => !numbers?.has(nameOf(each)))
  if (undeclared !== undefined) throw streamNotDeclared(undeclared, tx.isolation)
  if (tx.isJoined) {
    const statements = enqueuer.flush(prepared, undefined)
    await tx.whenInnermost(() => writeInCallersTransaction(tx.connection, statements, 'join()'))
  } else {
    await tx.keep(() => tx.workOf(KeptEvents, () => new KeptEvents(enqueuer, numbers)).add(prepared))
  }
}

function streamNotDeclared({ topic, key }: PreparedEvent, isolation: Transaction['isolation']): StreamNotDeclaredError {
  return new StreamNotDeclaredError(
    `The stream ${topic}/${key} was not declared: at ${isolation.toUpperCase()} its number must be read before the snapshot.`,
    { advice: 'Add streams: [{ topic, key }] to the options of the transaction, or use READ COMMITTED.' },
  )
}
