import { setImmediate as turn } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import type { InboxEvent } from '../inbox/index.ts'
import type { Delivery } from '../outbox/index.ts'
import type { Applier } from './applier.ts'
import { Lanes } from './lanes.ts'

const REFUSED: Delivery = { refused: 'no such account' }
const UNKNOWN: Delivery = { unknown: 'the server is away' }

interface More {
  readonly signal?: AbortSignal
  readonly tombstone?: boolean
  /** Whether the call waits for its transactions. */
  readonly waits?: boolean
}

interface Bench {
  /** The answers to events, such as `a1`, in words. */
  readonly apply: (names: readonly string[], more?: More) => Promise<string[]>
  /** What was applied, call by call. */
  readonly calls: string[]
  /** Ends the call that is in progress. */
  readonly end: (answers: readonly Delivery[]) => Promise<void>
}

const OWNER = new AbortController().signal

/** Lanes whose transactions end when the test says so, with its answers. */
function open(): Bench {
  const calls: string[] = []
  let resolve: (answers: Delivery[]) => void = () => undefined
  const apply = (events: readonly InboxEvent[]): Promise<Delivery[]> => {
    calls.push(events.map(({ id }) => id).join())
    return new Promise((ended) => (resolve = ended))
  }
  const lanes = new Lanes({ apply } as unknown as Applier<InboxEvent>, { concurrency: 2, batch: 100, shared: true })
  return {
    calls,
    async apply(names, { signal = OWNER, tombstone = false, waits = false } = {}) {
      const events = names.map((id) => ({ topic: 't', key: id[0] as string, seq: Number(id.slice(1)), id, tombstone }))
      const answers = await lanes.apply(events, { signal, ...(waits ? {} : { slowAfterMs: 10 }) })
      return answers.map((answer) => (typeof answer === 'string' ? answer : (Object.keys(answer)[0] as string)))
    },
    async end(answers) {
      resolve([...answers])
      await turn()
    },
  }
}

describe('an event that fails in a transaction that was answered as slow', () => {
  test('is answered when it comes again, once, and is tried afterwards', async () => {
    const { apply, calls, end } = open()
    expect(await apply(['a1', 'a2'])).toEqual(['slow', 'unknown'])
    expect(await apply(['a1', 'a2'])).toEqual(['slow', 'unknown'])
    await end([REFUSED, UNKNOWN])
    expect(await apply(['a1', 'a2'])).toEqual(['refused', 'unknown'])
    expect(calls).toEqual(['a1,a2'])
    expect(await apply(['a1', 'a2'])).toEqual(['slow', 'unknown'])
    expect(calls).toEqual(['a1,a2', 'a1,a2'])
  })

  test('is answered behind those before it, which are looked at again', async () => {
    const { apply, calls, end } = open()
    await apply(['a1', 'a2', 'a3'])
    await end(['sent', REFUSED, UNKNOWN])
    const again = apply(['a1', 'a2', 'a3'], { waits: true })
    await turn()
    await end(['sent'])
    expect(await again).toEqual(['sent', 'refused', 'unknown'])
    expect(calls).toEqual(['a1,a2,a3', 'a1'])
  })

  test('is tried again by another owner: the event can have been applied meanwhile', async () => {
    const { apply, calls, end } = open()
    await apply(['a1'])
    await end([REFUSED])
    const again = apply(['a1'], { signal: new AbortController().signal, waits: true })
    await turn()
    await end(['sent'])
    expect(await again).toEqual(['sent'])
    expect(calls).toEqual(['a1', 'a1'])
  })

  test('is applied as a tombstone where its number was given up meanwhile', async () => {
    const { apply, end } = open()
    await apply(['a1'])
    await end([REFUSED])
    const again = apply(['a1'], { tombstone: true, waits: true })
    await turn()
    await end(['sent'])
    expect(await again).toEqual(['sent'])
  })

  test('is tried again where that says nothing about it', async () => {
    const { apply, end } = open()
    await apply(['a1'])
    await end([UNKNOWN])
    const again = apply(['a1'], { waits: true })
    await turn()
    await end(['sent'])
    expect(await again).toEqual(['sent'])
  })
})
