/** Interleavings that no real server shows on demand: a client whose every answer the test decides. */
import { EventEmitter } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, expect, test } from 'vitest'
import type { Delivery, Sink } from '../outbox/index.ts'
import { type RabbitmqOptions, rabbitmqSink } from './rabbitmq.ts'
import { contextOf, eventOf, eventsOf } from './sinkBench.conformance.ts'

interface Published {
  readonly id: string
  readonly text: string
  readonly confirm: (error?: Error) => void
}

class ScriptedChannel extends EventEmitter {
  readonly published: Published[] = []
  /** Confirms everything at once. */
  willing = true
  room = true
  closes = 0
  publish(
    _: string,
    __: string,
    content: Buffer,
    options: { messageId: string },
    confirmed: (e: unknown) => void,
  ): boolean {
    const confirm = (error?: Error): void => confirmed(error ?? null)
    this.published.push({ id: options.messageId, text: content.toString(), confirm })
    if (this.willing) setImmediate(confirm)
    return this.room
  }
  checkExchange(): Promise<unknown> {
    return Promise.resolve({})
  }
  close(): Promise<void> {
    this.closes++
    return Promise.resolve()
  }
}

class ScriptedConnection extends EventEmitter {
  readonly channels: ScriptedChannel[] = []
  closes = 0
  hangs = false
  willing = true
  createConfirmChannel(): Promise<ScriptedChannel> {
    const channel = new ScriptedChannel()
    channel.willing = this.willing
    this.channels.push(channel)
    return this.hangs ? new Promise(() => undefined) : Promise.resolve(channel)
  }
  close(): Promise<void> {
    this.closes++
    return this.hangs ? new Promise(() => undefined) : Promise.resolve()
  }
}

const opened: Sink[] = []
afterEach(async () => {
  for (const sink of opened.splice(0)) await sink.close?.()
})

interface Scripted {
  readonly sink: Sink
  readonly connections: ScriptedConnection[]
  /** Whether channels of connections to come confirm at once. */
  readonly coming: { willing: boolean }
}

function scripted(options: Partial<RabbitmqOptions> = {}): Scripted {
  const connections: ScriptedConnection[] = []
  const coming = { willing: true }
  const connect = (): Promise<ScriptedConnection> => {
    const connection = Object.assign(new ScriptedConnection(), coming)
    connections.push(connection)
    return Promise.resolve(connection)
  }
  const sink = rabbitmqSink({ connect, exchange: 'events', timeoutMs: 60, ...options })
  opened.push(sink)
  return { sink, connections, coming }
}
const kind = (answer: Delivery | undefined): string | undefined =>
  typeof answer === 'object' ? Object.keys(answer)[0] : answer
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await sleep(1)
}
/** With one event sent, so that there is a channel to write a script for. */
async function running(
  options?: Partial<RabbitmqOptions>,
): Promise<Scripted & { readonly connection: ScriptedConnection; readonly channel: ScriptedChannel }> {
  const all = scripted(options)
  const { sink, connections } = all
  expect(await sink.send([eventOf('t', 'first', 1)], contextOf())).toEqual(['sent'])
  const connection = connections[0] as ScriptedConnection
  const channel = connection.channels[0] as ScriptedChannel
  channel.published.length = 0
  return { ...all, connection, channel }
}

test('has one message of a stream in progress at a time', async () => {
  const { sink, channel } = await running()
  channel.willing = false
  const events = eventsOf('t', ['a', 'b', 'c'], 4)
  const keyOf = new Map(events.map(({ id, key }) => [id, key]))
  const sending = sink.send(events, contextOf())
  const open: Published[] = []
  let taken = 0
  for (let confirmed = 0; confirmed < events.length; confirmed++) {
    await until(() => channel.published.length > taken || open.length > 0)
    open.push(...channel.published.slice(taken))
    taken = channel.published.length
    const keys = open.map(({ id }) => keyOf.get(id))
    expect(new Set(keys).size).toBe(keys.length)
    // The newest first.
    open.pop()?.confirm()
  }
  expect(new Set(await sending)).toEqual(new Set(['sent']))
})

test('ignores a late confirmation of what was sent again', async () => {
  const { sink, connections, connection, channel, coming } = await running()
  channel.willing = false
  coming.willing = false
  const events = [eventOf('t', 'k', 1), eventOf('t', 'k', 2)]
  expect((await sink.send(events, contextOf())).map(kind)).toEqual(['unknown', 'unknown'])
  expect(connection.closes).toBe(1)
  const again = sink.send(events, contextOf())
  await until(() => connections.length === 2 && connections[1]?.channels[0] !== undefined)
  const next = connections[1]?.channels[0] as ScriptedChannel
  await until(() => next.published.length === 1)
  channel.published[0]?.confirm()
  channel.emit('close')
  connection.emit('close')
  await sleep(5)
  expect(next.published.length).toBe(1)
  next.willing = true
  next.published[0]?.confirm()
  expect(await again).toEqual(['sent', 'sent'])
  expect(next.published.map(({ id }) => id)).toEqual(events.map(({ id }) => id))
})

test('refuses what is returned and confirmed, and stops only its stream', async () => {
  const { sink, channel } = await running()
  channel.willing = false
  const sending = sink.send(eventsOf('t', ['a', 'b'], 2), contextOf())
  await until(() => channel.published.length === 2)
  channel.willing = true
  const [a, b] = channel.published as [Published, Published]
  const fields = { replyCode: 312, replyText: 'NO_ROUTE' }
  channel.emit('return', { properties: { messageId: 'somebody else' }, fields })
  channel.emit('return', { properties: { messageId: a.id }, fields })
  a.confirm()
  b.confirm()
  expect((await sending).map(kind)).toEqual(['refused', 'sent', 'unknown', 'sent'])
})

test('reports a nack as unknown, and stops its stream', async () => {
  const { sink, channel } = await running()
  channel.willing = false
  const sending = sink.send(eventsOf('t', ['a'], 3), contextOf())
  await until(() => channel.published.length === 1)
  channel.published[0]?.confirm(new Error('message nacked'))
  expect((await sending).map(kind)).toEqual(['unknown', 'unknown', 'unknown'])
  expect(channel.published.length).toBe(1)
})

test('writes nothing while the socket is full, then continues in order', async () => {
  const { sink, channel } = await running({ timeoutMs: 2000 })
  channel.room = false
  const sending = sink.send(eventsOf('t', ['a', 'b', 'c'], 2), contextOf())
  await until(() => channel.published.length === 1)
  await sleep(5)
  expect(channel.published.length).toBe(1)
  channel.emit('drain')
  expect(channel.published.length).toBe(2)
  channel.room = true
  channel.emit('drain')
  expect(new Set(await sending)).toEqual(new Set(['sent']))
  expect(channel.published.length).toBe(6)
})

test('reports unknown when the socket stays full', async () => {
  const { sink, channel } = await running()
  Object.assign(channel, { room: false, willing: false })
  const answers = await sink.send(eventsOf('t', ['a', 'b', 'c'], 2), contextOf())
  expect(new Set(answers.map(kind))).toEqual(new Set(['unknown']))
  expect(channel.published.length).toBe(1)
})

test('reports unknown while the server is blocked, and resumes on the same connection', async () => {
  const { sink, connections, connection, channel } = await running()
  channel.willing = false
  const sending = sink.send([eventOf('t', 'k', 1)], contextOf())
  await until(() => channel.published.length === 1)
  connection.emit('blocked', 'low on memory')
  expect((await sending)[0]).toEqual({ unknown: expect.stringContaining('low on memory') as string })
  expect((await sink.send([eventOf('t', 'k', 1)], contextOf()))[0]).toHaveProperty('unknown')
  expect(channel.published.length).toBe(1)
  expect(await sink.healthy?.()).toBe(false)
  connection.emit('unblocked')
  expect(await sink.healthy?.()).toBe(true)
  expect(await sink.send([eventOf('t', 'k', 1)], contextOf())).toEqual(['sent'])
  expect([connections.length, connection.closes]).toEqual([1, 0])
})

test('counts an attempt when the server closes the connection over an event', async () => {
  const { sink, connections, connection, channel } = await running()
  channel.willing = false
  const sending = sink.send(eventsOf('t', ['a'], 2), contextOf())
  await until(() => channel.published.length === 1)
  connection.emit('error', Object.assign(new Error('FRAME_ERROR'), { code: 501 }))
  connection.emit('close')
  expect((await sending).map(kind)).toEqual(['failed', 'unknown'])
  expect(await sink.send([eventOf('t', 'b', 1)], contextOf())).toEqual(['sent'])
  expect(connections.length).toBe(2)
})

test('replaces a lost connection once for several batches', async () => {
  const { sink, connections, connection } = await running()
  connection.emit('close', new Error('gone'))
  const answers = await Promise.all(['a', 'b', 'c'].map((key) => sink.send([eventOf('t', key, 1)], contextOf())))
  expect(answers).toEqual([['sent'], ['sent'], ['sent']])
  expect(connections.length).toBe(2)
})

test('closes a connection that comes late, and one without a channel', async () => {
  const late = new ScriptedConnection()
  let arrive: (connection: ScriptedConnection) => void = () => undefined
  const slow = scripted({ connect: () => new Promise((resolve) => (arrive = resolve)) })
  expect((await slow.sink.send([eventOf('t', 'k', 1)], contextOf()))[0]).toHaveProperty('unknown')
  arrive(late)
  await until(() => late.closes === 1)

  const { sink, connections, connection, channel } = await running()
  connection.hangs = true
  channel.emit('close')
  expect((await sink.send([eventOf('t', 'k', 1)], contextOf()))[0]).toHaveProperty('unknown')
  expect(connection.closes).toBe(1)
  expect(await sink.send([eventOf('t', 'k', 1)], contextOf())).toEqual(['sent'])
  expect(connections.length).toBe(2)
})

test('returns from close() without an answer of the server', async () => {
  const { sink, connection, channel } = await running()
  channel.willing = false
  connection.hangs = true
  const sending = sink.send(eventsOf('t', ['a'], 2), contextOf())
  await until(() => channel.published.length === 1)
  await sink.close?.()
  expect((await sending).map(kind)).toEqual(['unknown', 'unknown'])
  expect((await sink.send([eventOf('t', 'b', 1)], contextOf())).map(kind)).toEqual(['unknown'])
})

test('starts nothing after an abort, and answers what is in progress', async () => {
  const { sink, channel } = await running()
  channel.willing = false
  const lost = new AbortController()
  const sending = sink.send(eventsOf('t', ['a', 'b'], 3), contextOf({ signal: lost.signal }))
  await until(() => channel.published.length === 2)
  lost.abort()
  for (const { confirm } of channel.published) confirm()
  expect((await sending).map(kind)).toEqual(['sent', 'sent', 'unknown', 'unknown', 'unknown', 'unknown'])
  expect(channel.published.length).toBe(2)
})

test('rejects invalid options', () => {
  const connect = (): Promise<never> => Promise.reject(new Error('never called'))
  const wrong: [object, string][] = [
    [{}, 'no `connect`'],
    [{ connect }, 'exchange is undefined'],
    [{ connect, exchange: 'x'.repeat(256) }, 'exchange is'],
    [{ connect, exchange: '', routingKey: '{tenant}' }, 'routingKey is'],
    [{ connect, exchange: '', routingKey: 7 }, 'routingKey is 7'],
    [{ connect, exchange: '', timeoutMs: 0 }, 'timeoutMs is 0'],
    [{ connect, exchange: '', maxEventBytes: 0.5 }, 'maxEventBytes is 0.5'],
  ]
  for (const [options, message] of wrong) {
    expect(() => rabbitmqSink(options as RabbitmqOptions)).toThrow(message)
  }
})

test.each(['abort', 'close', 'lease'])('does not send what waits for the socket after %s', async (how) => {
  const { sink, channel } = await running({ timeoutMs: 5000 })
  Object.assign(channel, { willing: false, room: false })
  const lost = new AbortController()
  let owned = true
  const sending = sink.send(eventsOf('t', ['a', 'b'], 1), contextOf({ signal: lost.signal, owned: () => owned }))
  await until(() => channel.published.length === 1)
  let closing: Promise<void> | undefined
  if (how === 'abort') lost.abort()
  else if (how === 'lease') owned = false
  else closing = sink.close?.()
  channel.room = true
  channel.emit('drain')
  for (const { confirm } of channel.published) confirm()
  expect((await sending).map(kind)).toEqual(['sent', 'unknown'])
  expect(channel.published.length).toBe(1)
  await closing
})

test('starts nothing in a process that was stopped past its lease', async () => {
  const { sink, channel } = await running()
  channel.willing = false
  let owned = true
  const sending = sink.send(eventsOf('t', ['a'], 2), contextOf({ owned: () => owned }))
  await until(() => channel.published.length === 1)
  owned = false
  channel.published[0]?.confirm()
  expect((await sending).map(kind)).toEqual(['sent', 'unknown'])
})
