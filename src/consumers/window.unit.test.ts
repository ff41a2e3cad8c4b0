import { setImmediate as turn } from 'node:timers/promises'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { InboxGapError } from '../errors.ts'
import type { InboxEvent } from '../inbox/index.ts'
import type { Delivery } from '../outbox/index.ts'
import type { Applier } from './applier.ts'
import type { Message } from './message.ts'
import { type StoppedKey, Window, type WindowPlan } from './window.ts'

interface Bench {
  readonly window: Window<InboxEvent>
  /** Every event that was applied, in order, as `a1`. */
  readonly applied: string[]
  readonly stops: StoppedKey<InboxEvent>[]
  /** Messages that were answered, and those that were returned. */
  readonly done: Message<InboxEvent>[]
  readonly back: Message<InboxEvent>[]
  readonly message: (name: string, more?: Partial<Message<InboxEvent>>) => Message<InboxEvent>
}

/** A window with the rules of the inbox below it. `answer`: of an event whose turn it is. */
function open(
  plan: Partial<WindowPlan<InboxEvent>> = {},
  answer: (name: string) => Promise<Delivery> | Delivery = () => 'sent',
): Bench {
  const positions = new Map<string, number>()
  const found: Omit<Bench, 'window' | 'message'> = { applied: [], stops: [], done: [], back: [] }
  const judge = async ({ key, seq }: InboxEvent): Promise<Delivery> => {
    const last = positions.get(key) ?? 0
    if (seq <= last) return 'sent'
    if (seq > last + 1) {
      const cause = new InboxGapError('a gap', { expected: last + 1, seq, advice: '' })
      return { refused: cause.message, cause }
    }
    const given = await answer(`${key}${seq}`)
    if (given !== 'sent') return given
    positions.set(key, seq)
    found.applied.push(`${key}${seq}`)
    return given
  }
  const apply = async (events: readonly InboxEvent[]): Promise<Delivery[]> => {
    const [answers, stopped] = [[] as Delivery[], new Set<string>()]
    for (const event of events) {
      const given: Delivery = stopped.has(event.key) ? { unknown: 'held' } : await judge(event)
      if (given !== 'sent') stopped.add(event.key)
      answers.push(given)
    }
    return answers
  }
  const window = new Window({ apply } as unknown as Applier<InboxEvent>, {
    concurrency: 2,
    batch: 100,
    shared: true,
    maxInFlight: 100,
    maxBytes: 1_000_000,
    firstBackoffMs: 1,
    longestBackoffMs: 2,
    attempts: 3,
    stopped: (stop) => (found.stops.push(stop), false),
    applied: () => undefined,
    failed: () => undefined,
    ...plan,
  })
  onTestFinished(() => window.close())
  const message: Bench['message'] = (name, more = {}) => {
    const event = { topic: 't', key: name[0] as string, seq: Number(name.slice(1)), id: name }
    const made: Message<InboxEvent> = {
      event,
      bytes: 10,
      done: () => void found.done.push(made),
      again: () => void found.back.push(made),
      ...more,
    }
    return made
  }
  return { ...found, window, message }
}

const FAILED: Delivery = { refused: 'no such account' }
const namesOf = (messages: readonly Message<InboxEvent>[]): string[] => messages.map(({ event }) => event.id)

describe('the window of a consumer', () => {
  test('applies a stream in the order of its numbers, however they come', async () => {
    const { window, applied, done, message } = open()
    for (const name of ['a2', 'a3', 'b1', 'a1']) window.take(message(name))
    await expect.poll(() => applied.toSorted()).toEqual(['a1', 'a2', 'a3', 'b1'])
    expect(applied.filter((name) => name.startsWith('a'))).toEqual(['a1', 'a2', 'a3'])
    await expect.poll(() => done.length).toBe(4)
    expect(window.count).toBe(0)
  })

  test('answers the broker when a message was applied, and not before', async () => {
    let broken = true
    const { window, stops, done, message } = open({}, () => (broken ? FAILED : 'sent'))
    window.take(message('a1'))
    await expect.poll(() => stops.length).toBeGreaterThan(1)
    expect(done).toEqual([])
    broken = false
    await expect.poll(() => namesOf(done)).toEqual(['a1'])
  })

  test('gives an event up that fills the window alone, and does not give it back before', async () => {
    const givenUp: string[] = []
    const giveUp = async ({ id }: InboxEvent): Promise<Delivery> => (givenUp.push(id), 'sent')
    const { window, applied, stops, back, message } = open({ maxInFlight: 1, giveUp }, (name) =>
      name === 'a1' ? FAILED : 'sent',
    )
    window.take(message('a1'))
    await expect.poll(() => givenUp).toEqual(['a1'])
    expect(stops.map(({ attempts }) => attempts)).toEqual([1, 2, 3])
    expect(back).toEqual([])
    window.take(message('b1'))
    await expect.poll(() => applied).toEqual(['b1'])
  })

  test('counts the failures of an event though earlier ones of its stream come again', async () => {
    const givenUp: string[] = []
    const giveUp = async ({ id }: InboxEvent): Promise<Delivery> => (givenUp.push(id), 'sent')
    const given = open({ giveUp, stopped: ({ attempts }) => (again(attempts), false) }, (name) =>
      name === 'a3' ? FAILED : 'sent',
    )
    const { window, message } = given
    const attempts: number[] = []
    const again = (count: number): void => {
      attempts.push(count)
      window.take(message('a1'))
    }
    for (const name of ['a1', 'a2', 'a3']) window.take(message(name))
    await expect.poll(() => givenUp).toEqual(['a3'])
    expect(attempts).toEqual([1, 2, 3])
  })

  test('gives messages back that wait for one that has no room', async () => {
    const { window, applied, message } = open({ maxInFlight: 4 })
    // A broker that delivers what comes back behind the others.
    const queue = ['a2', 'a3', 'b2', 'b3', 'a1', 'b1']
    const deliver = async (): Promise<void> => {
      while (applied.length < 6) {
        await window.room()
        const name = queue.shift()
        if (name === undefined) await turn()
        else window.take(message(name, { again: () => void queue.push(name) }))
      }
    }
    await deliver()
    expect(applied.filter((name) => name.startsWith('a'))).toEqual(['a1', 'a2', 'a3'])
    expect(applied.filter((name) => name.startsWith('b'))).toEqual(['b1', 'b2', 'b3'])
  })

  test('releases the events behind one that fails, and keeps that one', async () => {
    const { window, back, message } = open({ maxInFlight: 4 }, () => FAILED)
    for (const name of ['a1', 'a2', 'a3', 'a4']) window.take(message(name))
    await expect.poll(() => namesOf(back)).toEqual(['a3', 'a4'])
    expect(window.isFull).toBe(false)
    expect(window.count).toBe(2)
  })

  test('gives nothing back while the database does not answer', async () => {
    let down = true
    const { window, stops, applied, back, message } = open({ maxInFlight: 2 }, () =>
      down ? { unknown: 'no answer' } : 'sent',
    )
    for (const name of ['a1', 'b1']) window.take(message(name))
    await expect.poll(() => stops.length).toBeGreaterThan(6)
    expect(back).toEqual([])
    down = false
    await expect.poll(() => applied.toSorted()).toEqual(['a1', 'b1'])
  })

  test('keeps one delivery of a message that comes again, and answers that one', async () => {
    let broken = true
    const { window, done, message } = open({}, () => (broken ? FAILED : 'sent'))
    const deliveries = [1, 2, 3].map(() => message('a1', { name: '17' }))
    for (const each of deliveries) window.take(each)
    expect(window.count).toBe(1)
    broken = false
    await expect.poll(() => done).toEqual([deliveries[2]])
    expect(window.count).toBe(0)
  })

  test('drops what a lost session has delivered, and does not answer there', async () => {
    const session = {}
    let goOn = (): void => undefined
    const released = new Promise<void>((resolve) => (goOn = resolve))
    let begun = false
    const { window, applied, done, message } = open({ batch: 1 }, async (name): Promise<Delivery> => {
      if (name !== 'a1') return 'sent'
      begun = true
      await released
      return 'sent'
    })
    for (const name of ['a1', 'a2', 'a3']) window.take(message(name, { session }))
    await expect.poll(() => begun).toBe(true)
    window.forget(session)
    expect(window.count).toBe(1)
    // They come again, on another one.
    const again = ['a1', 'a2', 'a3'].map((name) => message(name, { session: {} }))
    for (const each of again) window.take(each)
    goOn()
    await expect.poll(() => applied).toEqual(['a1', 'a2', 'a3'])
    await expect.poll(() => done).toEqual(again)
    expect(window.count).toBe(0)
  })

  test('drops a message of a lost session that fails', async () => {
    const session = {}
    let goOn = (): void => undefined
    const released = new Promise<void>((resolve) => (goOn = resolve))
    const { window, stops, message } = open({}, async () => {
      await released
      return FAILED
    })
    window.take(message('a1', { session }))
    await turn()
    window.forget(session)
    goOn()
    await expect.poll(() => stops.length).toBe(1)
    await expect.poll(() => window.count).toBe(0)
  })

  test('asks for as many as have room by their size', async () => {
    const { window, message } = open({ maxBytes: 1000, maxInFlight: 100 }, () => FAILED)
    expect(window.free).toBe(16)
    window.take(message('a1', { bytes: 100 }))
    expect(window.free).toBe(9)
    for (let n = 2; n <= 10; n++) window.take(message(`a${n}`, { bytes: 100 }))
    expect(window.free).toBe(0)
  })

  test('sets no timer for streams whose tenant has all that it may have', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    try {
      let goOn = (): void => undefined
      const released = new Promise<void>((resolve) => (goOn = resolve))
      const limitBy = { tenant: () => 'slow', concurrency: 1 }
      const { window, applied, message } = open({ shared: false, limitBy }, async (): Promise<Delivery> => {
        await released
        return 'sent'
      })
      for (const name of ['a1', 'b1', 'c1']) window.take(message(name))
      for (let n = 0; n < 5; n++) await turn()
      expect(vi.getTimerCount()).toBe(0)
      goOn()
      while (applied.length < 3) await turn()
    } finally {
      vi.useRealTimers()
    }
  })
})
