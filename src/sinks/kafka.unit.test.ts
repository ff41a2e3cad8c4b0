import { describe, expect, test } from 'vitest'
import type { Delivery, OutboxEvent } from '../outbox/index.ts'
import { kafkaSink, type KafkaTopicMessages, type KafkaTransactionalProducer } from './kafka.ts'
import { contextOf, eventOf, eventsOf, underFence } from './sinkBench.conformance.ts'

const kindOf = (answer: Delivery | undefined): string =>
  typeof answer === 'object' ? (Object.keys(answer)[0] as string) : String(answer)
const kinds = (answers: readonly Delivery[]): string[] => answers.map(kindOf)
const protocolError = (code: number, message: string): Error => Object.assign(new Error(message), { code })

/** A step that waits until it is let go: a process that is paused there. */
class Pause {
  #reached: () => void = () => undefined
  #release: () => void = () => undefined
  readonly reached = new Promise<void>((resolve) => (this.#reached = resolve))
  readonly #released = new Promise<void>((resolve) => (this.#release = resolve))
  async here(): Promise<void> {
    this.#reached()
    await this.#released
  }
  end(): void {
    this.#release()
  }
}

type Step = 'connect' | 'transaction' | 'opened' | 'sendBatch' | 'commit' | 'committed'

/** What Kafka does with transactional ids: an epoch for each, and only the newest producer may write. */
class Coordinator {
  readonly committed: string[] = []
  readonly transactions: number[] = []
  readonly #epochs = new Map<string, number>()
  opened = 0
  disconnected = 0
  aborted = 0
  active = 0
  mostActive = 0
  refuses: (topic: string, value: string) => number | undefined = () => undefined

  /** A process: what it does at each step can be made to wait, or to fail. */
  process(at: Partial<Record<Step, () => Promise<void>>> = {}): (id: string) => KafkaTransactionalProducer {
    return (id) => {
      let epoch = 0
      const check = (): void => {
        if (epoch !== this.#epochs.get(id)) throw protocolError(47, 'INVALID_PRODUCER_EPOCH')
      }
      const transaction = async (): Promise<{
        sendBatch(batch: { topicMessages: KafkaTopicMessages[] }): Promise<void>
        commit(): Promise<void>
        abort(): Promise<void>
      }> => {
        await at.transaction?.()
        if (epoch === 0) {
          epoch = (this.#epochs.get(id) ?? 0) + 1
          this.#epochs.set(id, epoch)
        }
        await at.opened?.()
        this.mostActive = Math.max(this.mostActive, ++this.active)
        const written: string[] = []
        return {
          sendBatch: async ({ topicMessages }) => {
            await at.sendBatch?.()
            check()
            for (const { topic, messages } of topicMessages) {
              for (const { value, headers } of messages) {
                const code = this.refuses(topic, value.toString())
                if (code !== undefined) throw protocolError(code, `code ${code}`)
                written.push(`${headers['lockstep-key']}${headers['lockstep-seq']}`)
              }
            }
          },
          commit: async () => {
            await at.commit?.()
            this.active--
            check()
            this.committed.push(...written)
            this.transactions.push(written.length)
            await at.committed?.()
          },
          abort: async () => {
            this.active--
            check()
            this.aborted++
          },
        }
      }
      return {
        connect: async () => {
          this.opened++
          await at.connect?.()
        },
        disconnect: async () => void this.disconnected++,
        transaction,
      }
    }
  }
}

const once = (pause: Pause): (() => Promise<void>) => {
  let done = false
  return async () => {
    if (done) return
    done = true
    await pause.here()
  }
}

describe('in transactions', () => {
  test('sends a transaction per batch, with a transactional id per shard, one at a time', async () => {
    const kafka = new Coordinator()
    const ids: string[] = []
    const make = kafka.process()
    const transactional = (id: string): KafkaTransactionalProducer => {
      ids.push(id)
      return make(id)
    }
    const sink = kafkaSink({ transactional, transactionalIdPrefix: 'shop' })
    const batches = [eventsOf('t', ['a', 'b'], 2), eventsOf('t', ['c'], 3), eventsOf('t', ['d'], 1)] as OutboxEvent[][]
    const answers = await Promise.all(
      batches.map((batch, index) => sink.send(batch, contextOf({ dispatcher: 'main', shard: index === 2 ? 7 : 3 }))),
    )
    expect(new Set(answers.flat())).toEqual(new Set(['sent']))
    expect(kafka.transactions.toSorted((a, b) => a - b)).toEqual([1, 3, 4])
    expect(ids.toSorted()).toEqual(['shop-main-3', 'shop-main-7'])
    expect(kafka.mostActive).toBeLessThanOrEqual(2)
    await sink.close?.()
    expect(kafka.disconnected).toBe(2)
  })

  test('reports unknown for a dispatcher that was paused before its commit and fenced', async () => {
    const kafka = new Coordinator()
    const pause = new Pause()
    let owned = true
    const late = kafkaSink({ transactional: kafka.process({ commit: once(pause) }) })
    const next = kafkaSink({ transactional: kafka.process() })
    const held = eventsOf('t', ['k'], 2)
    const sending = late.send(held, contextOf({ owned: () => owned }))
    await pause.reached
    owned = false
    const second = contextOf({ fence: 2n })
    expect(await next.send(underFence(held, 2n), second)).toEqual(['sent', 'sent'])
    expect(await next.send([eventOf('t', 'k', 3)], second)).toEqual(['sent'])
    pause.end()
    const answers = await sending
    expect(kinds(answers)).toEqual(['unknown', 'unknown'])
    expect((answers[0] as { unknown: string }).unknown).toContain('transactional id')
    expect(kafka.committed).toEqual(['k1', 'k2', 'k3'])
    // And it does not come back.
    expect(kinds(await late.send(held, contextOf({ owned: () => owned })))).toEqual(['unknown', 'unknown'])
    expect(kafka.committed).toEqual(['k1', 'k2', 'k3'])
    expect(await next.send([eventOf('t', 'k', 4)], second)).toEqual(['sent'])
  })

  test.each(['transaction', 'opened', 'connect'] as const)(
    'sends nothing when paused at %s, and its successor takes the transactional id back',
    async (step) => {
      const kafka = new Coordinator()
      const pause = new Pause()
      let owned = true
      const late = kafkaSink({ transactional: kafka.process({ [step]: once(pause) }) })
      const next = kafkaSink({ transactional: kafka.process() })
      const held = eventsOf('t', ['k'], 2)
      const sending = late.send(held, contextOf({ owned: () => owned }))
      await pause.reached
      owned = false
      const second = contextOf({ fence: 2n })
      expect(await next.send(underFence(held, 2n), second)).toEqual(['sent', 'sent'])
      pause.end()
      expect(kinds(await sending)).toEqual(['unknown', 'unknown'])
      expect(kafka.committed).toEqual(['k1', 'k2'])
      const third = [eventOf('t', 'k', 3, { fence: 2n })]
      const answers = await next.send(third, second)
      if (answers[0] !== 'sent') expect(await next.send(third, second)).toEqual(['sent'])
      expect(kafka.committed).toEqual(['k1', 'k2', 'k3'])
    },
  )

  test('sends the other events when Kafka rejects one', async () => {
    const kafka = new Coordinator()
    kafka.refuses = (_, value) => (value.includes('huge') ? 10 : undefined)
    const sink = kafkaSink({ transactional: kafka.process() })
    const events = eventsOf('t', ['a', 'b', 'c'], 4).map((event) =>
      event.key === 'b' && event.seq === 2 ? eventOf('t', 'b', 2, { payload: 'huge' }) : event,
    )
    const answers = await sink.send(events, contextOf())
    const of = (key: string): string[] => kinds(answers.filter((_, place) => events[place]?.key === key))
    expect(of('b')).toEqual(['sent', 'refused', 'unknown', 'unknown'])
    expect([of('a'), of('c')]).toEqual([Array(4).fill('sent'), Array(4).fill('sent')])
    expect(kafka.committed.filter((name) => name.startsWith('b'))).toEqual(['b1'])
    expect(kafka.committed.filter((name) => name.startsWith('a'))).toEqual(['a1', 'a2', 'a3', 'a4'])
  })

  test('delays only the events of a missing topic', async () => {
    const kafka = new Coordinator()
    kafka.refuses = (topic) => (topic === 'gone' ? 3 : undefined)
    const sink = kafkaSink({ transactional: kafka.process() })
    const events = [eventOf('there', 'a', 1), eventOf('gone', 'a', 1), eventOf('there', 'a', 2)]
    expect(kinds(await sink.send(events, contextOf()))).toEqual(['sent', 'unknown', 'sent'])
    expect(kafka.committed).toEqual(['a1', 'a2'])
  })

  test('reports unknown for an unanswered commit, ends it, and sends the next batch in order', async () => {
    const kafka = new Coordinator()
    const pause = new Pause()
    const sink = kafkaSink({ transactional: kafka.process({ committed: once(pause) }), timeoutMs: 50 })
    const events = eventsOf('t', ['k'], 2)
    expect(kinds(await sink.send(events, contextOf()))).toEqual(['unknown', 'unknown'])
    expect(await sink.send(events, contextOf())).toEqual(['sent', 'sent'])
    expect(kafka.committed).toEqual(['k1', 'k2', 'k1', 'k2'])
    pause.end()
    await sink.close?.()
    expect([kafka.opened, kafka.disconnected]).toEqual([2, 2])
  })

  test('gives up a slow connect in time, and closes the connection when it opens', async () => {
    const kafka = new Coordinator()
    const pause = new Pause()
    const sink = kafkaSink({ transactional: kafka.process({ connect: once(pause) }), timeoutMs: 50 })
    expect(kinds(await sink.send(eventsOf('t', ['k'], 1), contextOf()))).toEqual(['unknown'])
    expect(await sink.send(eventsOf('t', ['k'], 1), contextOf())).toEqual(['sent'])
    expect(kafka.disconnected).toBe(0)
    pause.end()
    await sink.close?.()
    expect([kafka.opened, kafka.disconnected]).toEqual([2, 2])
  })

  test('closes the producer of a lost shard, and sends no older call', async () => {
    const kafka = new Coordinator()
    const sink = kafkaSink({ transactional: kafka.process() })
    const lost = new AbortController()
    expect(await sink.send(eventsOf('t', ['k'], 1), contextOf({ signal: lost.signal }))).toEqual(['sent'])
    lost.abort()
    while (kafka.disconnected === 0) await new Promise((resolve) => setImmediate(resolve))
    expect(await sink.send([eventOf('t', 'k', 2)], contextOf({ fence: 3n }))).toEqual(['sent'])
    expect(kinds(await sink.send([eventOf('t', 'k', 2)], contextOf({ fence: 2n })))).toEqual(['unknown'])
    expect(kafka.committed).toEqual(['k1', 'k2'])
    await sink.close?.()
  })

  test('reports unknown when a factory or a client throws', async () => {
    const thrown = (): never => {
      throw new Error('no such setting')
    }
    const bad = kafkaSink({ transactional: thrown })
    expect(kinds(await bad.send(eventsOf('t', ['k'], 1), contextOf()))).toEqual(['unknown'])
    const client = { connect: thrown, disconnect: thrown, transaction: thrown }
    const worse = kafkaSink({ transactional: () => client })
    expect(kinds(await worse.send(eventsOf('t', ['k'], 1), contextOf()))).toEqual(['unknown'])
    await worse.close?.()
  })
})

describe('without transactions', () => {
  test('limits requests to the message size of the topic', async () => {
    const sizes: number[] = []
    const producer = {
      sendBatch: async ({ topicMessages }: { topicMessages: KafkaTopicMessages[] }) => {
        sizes.push(...topicMessages.map(({ messages }) => messages.reduce((sum, { value }) => sum + value.length, 0)))
      },
    }
    const sink = kafkaSink({ producer, maxMessageBytes: 10_000 })
    const events = Array.from({ length: 30 }, (_, index) => eventOf('t', 'k', index + 1, { payload: 'x'.repeat(1000) }))
    expect(new Set(await sink.send(events, contextOf()))).toEqual(new Set(['sent']))
    expect(sizes.length).toBeGreaterThan(3)
    expect(Math.max(...sizes)).toBeLessThan(10_000)
  })

  test('holds a stream until the client has finished the request that was given up, but not forever', async () => {
    const sent: string[] = []
    const pause = new Pause()
    let calls = 0
    const producer = {
      sendBatch: async ({ topicMessages }: { topicMessages: KafkaTopicMessages[] }) => {
        if (++calls === 1) await pause.here()
        for (const { messages } of topicMessages)
          sent.push(...messages.map(({ headers }) => `${headers['lockstep-seq']}`))
      },
    }
    const sink = kafkaSink({ producer, timeoutMs: 60 })
    expect(kinds(await sink.send([eventOf('t', 'k', 1)], contextOf()))).toEqual(['unknown'])
    const both = [eventOf('t', 'k', 1), eventOf('t', 'other', 9)]
    expect(kinds(await sink.send(both, contextOf()))).toEqual(['unknown', 'sent'])
    pause.end()
    while (sent.length < 2) await new Promise((resolve) => setImmediate(resolve))
    expect(kinds(await sink.send([eventOf('t', 'k', 2)], contextOf()))).toEqual(['sent'])
    expect(sent).toEqual(['9', '1', '2'])

    calls = 0
    const never = { sendBatch: () => (++calls === 1 ? new Promise<void>(() => undefined) : Promise.resolve()) }
    const other = kafkaSink({ producer: never, timeoutMs: 40 })
    const answers: string[] = []
    while (answers.at(-1) !== 'sent') answers.push(...kinds(await other.send([eventOf('t', 'k', 1)], contextOf())))
    expect(answers[0]).toBe('unknown')
  })

  test('maps topics, and refuses only events whose topic is no valid name', async () => {
    const topics: string[] = []
    const producer = {
      sendBatch: async ({ topicMessages }: { topicMessages: KafkaTopicMessages[] }) => {
        topics.push(...topicMessages.map(({ topic }) => topic))
      },
    }
    const prefixed = (topic: string): string => {
      if (topic === 'bad') throw new Error('unmapped')
      return `prod.${topic}`
    }
    const sink = kafkaSink({ producer, topic: prefixed })
    const events = [eventOf('a', 'k', 1), eventOf('b/c', 'k', 1), eventOf('b/c', 'k', 2), eventOf('bad', 'k', 1)]
    const answers = await sink.send(events, contextOf())
    expect(kinds(answers)).toEqual(['sent', 'refused', 'unknown', 'failed'])
    expect((answers[1] as { refused: string }).refused).toContain('prod.b/c')
    expect(topics).toEqual(['prod.a'])
  })

  test('sends the other events when a topic is missing or Kafka rejects an event', async () => {
    const sent: string[] = []
    const producer = {
      sendBatch: async ({ topicMessages }: { topicMessages: KafkaTopicMessages[] }) => {
        for (const { topic, messages } of topicMessages) {
          // As kafkajs says it once it has tried often enough.
          if (topic === 'gone') throw new Error('retries exceeded', { cause: protocolError(3, 'no such topic') })
          if (messages.some(({ value }) => value.includes('huge'))) throw protocolError(10, 'too large')
          sent.push(...messages.map(({ key, headers }) => `${key}${headers['lockstep-seq']}`))
        }
      },
    }
    const sink = kafkaSink({ producer })
    const events = eventsOf('t', ['a', 'b'], 9).map((event) =>
      event.key === 'b' && event.seq === 4 ? eventOf('t', 'b', 4, { payload: 'huge' }) : event,
    )
    const answers = await sink.send([...events, eventOf('gone', 'c', 1)], contextOf())
    expect(kindOf(answers.at(-1))).toBe('unknown')
    const of = (key: string): string[] =>
      kinds(events.flatMap((event, place) => (event.key === key ? [answers[place] as Delivery] : [])))
    expect(of('a')).toEqual(Array(9).fill('sent'))
    expect(of('b')).toEqual(['sent', 'sent', 'sent', 'refused', 'unknown', 'unknown', 'unknown', 'unknown', 'unknown'])
    expect(sent.filter((name) => name.startsWith('b'))).toEqual(['b1', 'b2', 'b3'])
    expect(sent.filter((name) => name.startsWith('a'))).toEqual(Array.from({ length: 9 }, (_, n) => `a${n + 1}`))
  })

  test('reports unknown when a client throws at once and when the lease has expired', async () => {
    const producer = {
      sendBatch: (): never => {
        throw new Error('The producer is disconnected')
      },
    }
    const sink = kafkaSink({ producer })
    expect(kinds(await sink.send([eventOf('t', 'k', 1)], contextOf()))).toEqual(['unknown'])
    const calls: number[] = []
    const other = kafkaSink({ producer: { sendBatch: async () => void calls.push(1) } })
    expect(kinds(await other.send([eventOf('t', 'k', 1)], contextOf({ owned: () => false })))).toEqual(['unknown'])
    expect(calls).toEqual([])
  })

  test('has a health check only with an admin client', async () => {
    const producer = { sendBatch: async () => undefined }
    expect('healthy' in kafkaSink({ producer })).toBe(false)
    expect(await kafkaSink({ producer, admin: { listTopics: async () => [] } }).healthy?.()).toBe(true)
    const silent = { listTopics: () => new Promise(() => undefined) }
    expect(await kafkaSink({ producer, admin: silent, timeoutMs: 20 }).healthy?.()).toBe(false)
  })
})

test('rejects invalid options with advice', () => {
  const producer = { sendBatch: async () => undefined }
  const transactional = new Coordinator().process()
  for (const [options, message] of [
    [undefined, 'not an object'],
    [{}, 'either'],
    [{ producer, transactional }, 'either'],
    [{ producer: {} }, 'sendBatch'],
    [{ transactional: {} }, 'no function'],
    [{ transactional, transactionalIdPrefix: '' }, 'transactionalIdPrefix'],
    [{ producer, admin: {} }, 'listTopics'],
    [{ producer, topic: 'x' }, 'topic'],
    [{ producer, timeoutMs: 0 }, 'timeoutMs'],
    [{ producer, timeoutMs: Infinity }, 'timeoutMs'],
    [{ producer, maxMessageBytes: 1.5 }, 'maxMessageBytes'],
  ] as const) {
    expect(() => kafkaSink(options as never)).toThrow(message)
    expect(() => kafkaSink(options as never)).toThrow(expect.objectContaining({ code: 'LOCKSTEP_INVALID_OPTION' }))
  }
})
