import type { Mutant } from './mutant.ts'

/** Those of the consumers' protocol. */
export const consumers: readonly Mutant[] = [
  {
    name: 'position-without-effect',
    why: 'The position of a consumer moves in a transaction of its own, before the effect: an effect that is rolled back is never there.',
    file: 'src/consumers/applier.ts',
    find: '      const verdicts = await this.#withTimeout(',
    replace: `      const found = await this.#options.transaction({}, (own) => inbox.acceptMany(own, events, { start }))
      const verdicts = await this.#withTimeout(`,
    and: [
      {
        file: 'src/consumers/applier.ts',
        find: 'const found = await inbox.acceptMany(tx, events, { start, idleMs: timeoutMs, durable })',
        replace: '// It has moved by now.',
      },
    ],
    caughtBy: {
      by: 'test',
      file: 'src/consumers/consumer.pg.test.ts',
      test: 'stops only the key of an event that fails, and continues with it later',
    },
  },
  {
    name: 'acknowledged-before-commit',
    why: 'A message is acknowledged when its transaction begins: what is rolled back does not come again.',
    file: 'src/consumers/window.ts',
    find: 'for (const message of messages) this.#inTransaction.add(message)',
    replace: `for (const message of messages) {
        this.#inTransaction.add(message)
        this.#finish(message)
      }`,
    caughtBy: {
      by: 'test',
      file: 'src/consumers/window.unit.test.ts',
      test: 'answers the broker when a message was applied, and not before',
    },
  },
  {
    name: 'lost-transaction-counts-as-sent',
    why: 'A transaction that was lost on the way to the server counts as committed: its events are never applied.',
    file: 'src/consumers/applier.ts',
    find: 'for (const place of places) answers[place] = batch.over\n      return\n    }\n    if (streams.length > 1)',
    replace: "for (const place of places) answers[place] = 'sent'\n      return\n    }\n    if (streams.length > 1)",
    caughtBy: {
      by: 'test',
      file: 'src/consumers/applier.unit.test.ts',
      test: 'counts no event as sent whose transaction was lost',
    },
  },
  {
    name: 'all-events-blamed',
    why: 'A shared transaction that fails is not done again in halves: the events of other keys stop with the one that fails.',
    file: 'src/consumers/applier.ts',
    find: 'if (streams.length > 1) {\n      const middle',
    replace: `if (streams.length > 1) {
      for (const place of places) answers[place] = this.#blame(failure, batch.events[place] as Event)
    } else if (streams.length > 1) {
      const middle`,
    caughtBy: {
      by: 'test',
      file: 'src/consumers/consumer.pg.test.ts',
      test: 'parks a poison event, which an operator skips',
    },
  },
  {
    name: 'stream-in-several-lanes',
    why: 'The events of a batch are divided among lanes one by one: those of a key are in several transactions at once.',
    file: 'src/consumers/lanes.ts',
    find: 'for (const places of streamsOf(events)) {',
    replace: 'for (const places of [...events.keys()].map((place) => [place])) {',
    caughtBy: {
      by: 'test',
      file: 'src/consumers/consumer.pg.test.ts',
      test: 'has the events of a key in one transaction at a time',
    },
  },
  {
    name: 'failing-event-given-back',
    why: 'A full window gives the event that fails back as well: it comes again at once, and is never given up.',
    file: 'src/consumers/window.ts',
    find: "stop.kind === 'gap' ? messages : messages.slice(1)",
    replace: 'messages',
    and: [
      {
        file: 'src/consumers/window.ts',
        find: 'if (queue.messages.length > 0 || queue.busy) return\n    if (queue.stop === undefined) this',
        replace: 'if (queue.messages.length > 0 || queue.busy) return\n    if (queue.stop !== null) this',
      },
    ],
    caughtBy: {
      by: 'test',
      file: 'src/consumers/window.unit.test.ts',
      test: 'gives an event up that fills the window alone, and does not give it back before',
    },
  },
  {
    name: 'offset-of-the-newest-message',
    why: 'Kafka gets the offset behind the newest message: what is applied later, or not at all, is not delivered again.',
    file: 'src/sinks/kafkaConsumer.ts',
    find: 'const [lowest = this.#next] = this.#pending',
    replace: 'const lowest = this.#next',
    caughtBy: {
      by: 'test',
      file: 'src/sinks/kafkaConsumer.unit.test.ts',
      test: 'commits the offset before the first message that was not applied',
    },
  },
]
