import { describe, expect, test } from 'vitest'
import { replay } from './replay.ts'
import {
  type Batch,
  type CommittedEvent,
  type Cursor,
  readSnapshot,
  readTrace,
  type Trace,
  writeTrace,
} from './trace.ts'

const event = (position: number, xid: number, seq: number, stream = 's'): CommittedEvent => ({
  shard: 0,
  position,
  xid,
  stream,
  seq,
  id: `e${position}`,
})
const cursor = (version: number, fence: number, prev: string, next: string, rest: Partial<Cursor> = {}): Cursor => ({
  shard: 0,
  version,
  fence: String(fence),
  prev: readSnapshot(prev),
  next: readSnapshot(next),
  after: 0,
  done: true,
  aside: [],
  ...rest,
})
const batch = (fence: number, events: readonly CommittedEvent[], rest: Partial<Batch> = {}): Batch => ({
  shard: 0,
  fence: String(fence),
  beside: false,
  events,
  taken: events.map(() => true),
  ...rest,
})

const [one, two, three] = [event(1, 10, 1), event(2, 12, 2), event(3, 11, 1, 't')]
/** Two owners, one after the other. The second one sends #2 and what was in progress before. */
const good: Trace = {
  events: [one, two, three],
  ticks: [{ xid: 11, snapshot: readSnapshot('11:12:11') }],
  cursors: [
    cursor(1, 7, '1:1:', '1:1:'),
    cursor(2, 7, '1:1:', '11:12:11', { after: 1 }),
    cursor(3, 8, '1:1:', '11:12:11', { after: 1 }),
    cursor(4, 8, '11:12:11', '13:13:', { after: 3 }),
  ],
  batches: [batch(7, [one]), batch(7, [two, three]), batch(8, [two, three])],
  waiting: [],
  clashes: [],
  crashed: false,
  complete: true,
}
const at = <Part>(list: readonly Part[], index: number, change: Partial<Part>): Part[] =>
  list.map((each, place) => (place === index ? { ...each, ...change } : each))

test('accepts a run in which a second owner sends the current batch of the first one again', () => {
  expect(replay(good)).toEqual([])
})

test('reads what it writes', () => {
  expect(readTrace(writeTrace(good))).toEqual(good)
})

describe('rejects', () => {
  const cases: Readonly<Record<string, { readonly breaks: string; readonly trace: Partial<Trace> }>> = {
    'a number that is used twice': { breaks: 'O1', trace: { events: [one, { ...two, seq: 1 }, three] } },
    'a writer that found its number taken': { breaks: 'O1', trace: { clashes: ['r1.w1.outbox.0.4: 23505'] } },
    'a tick that leaves out its own transaction': {
      breaks: 'O2',
      trace: { ticks: [{ xid: 11, snapshot: readSnapshot('12:12:') }] },
    },
    'a cursor that passes an unsent event': {
      breaks: 'O2',
      trace: { batches: [batch(7, [one]), batch(8, [two])] },
    },
    'a batch with an event that is not in its window': {
      breaks: 'O2',
      trace: { batches: [batch(7, [one, three]), batch(8, [two, three])] },
    },
    'a cursor that goes back': {
      breaks: 'O2',
      trace: { cursors: at(good.cursors, 3, { next: readSnapshot('11:13:11') }) },
    },
    'an event that was sent and is not there': { breaks: 'O3', trace: { events: [one, two] } },
    'a cursor that a former owner has moved': { breaks: 'O4', trace: { cursors: at(good.cursors, 3, { fence: '7' }) } },
    'an owner that has never taken the shard': { breaks: 'O4', trace: { batches: [...good.batches, batch(9, [two])] } },
    'a refused event that is passed and not parked': {
      breaks: 'O5',
      trace: { batches: [batch(7, [one]), batch(8, [two, three], { taken: [false, true] })] },
    },
    'an event that was parked and then forgotten': {
      breaks: 'O5',
      trace: {
        cursors: at(good.cursors, 3, { aside: [2] }),
        batches: [batch(7, [one]), batch(8, [two, three], { taken: [false, true] })],
      },
    },
    'a number that is sent before the one before it': {
      breaks: 'O6',
      trace: { batches: [batch(7, [two]), ...good.batches] },
    },
    'an event that is never sent': { breaks: 'O8', trace: { events: [...good.events, event(4, 20, 3)] } },
  }

  test.each(Object.entries(cases))('%s', (_, { breaks, trace }) => {
    expect(replay({ ...good, ...trace }).map(({ invariant }) => invariant)).toContain(breaks)
  })
})
