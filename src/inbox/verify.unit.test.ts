import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { InvalidOptionError } from '../errors.ts'
import { type Gap, type SeenEvent, type StreamReport, StreamVerifier, type StreamVerifierOptions } from './index.ts'

function verify(events: readonly SeenEvent[], options?: StreamVerifierOptions): StreamReport {
  const verifier = new StreamVerifier(options)
  for (const event of events) verifier.see(event)
  return verifier.report()
}

/** The same by remembering everything. */
function model(events: readonly SeenEvent[], begin: 1 | 'first' = 1): Omit<StreamReport, 'forgottenGaps'> {
  const all = new Map<string, SeenEvent[]>()
  const [duplicates, inversions, divergences, gaps]: [unknown[], unknown[], unknown[], Gap[]] = [[], [], [], []]
  for (const event of events) {
    const { topic, key, seq, id } = event
    const before = all.get(`${topic} ${key}`) ?? []
    all.set(`${topic} ${key}`, [...before, event])
    const max = Math.max(0, ...before.map((each) => each.seq))
    const known = before.find((each) => each.seq === seq)
    const knownId = known?.id
    if (known !== undefined && id !== undefined && knownId !== undefined && id !== knownId) {
      divergences.push({ topic, key, seq, id, knownId })
    } else if (known !== undefined) duplicates.push({ topic, key, seq })
    else if (seq < max) inversions.push({ topic, key, seq, after: max })
  }
  for (const stream of all.values()) {
    const { topic, key } = stream[0] as SeenEvent
    const numbers = new Set(stream.map(({ seq }) => seq))
    let from: number | undefined
    for (let seq = begin === 1 ? 1 : Math.min(...numbers); seq <= Math.max(...numbers); seq++) {
      if (!numbers.has(seq)) from ??= seq
      else if (from !== undefined) {
        gaps.push({ topic, key, from, to: seq - 1 })
        from = undefined
      }
    }
  }
  const told = <T>(examples: T[]): { count: number; examples: T[] } => ({ count: examples.length, examples })
  return {
    inOrder: gaps.length + inversions.length + divergences.length === 0,
    streams: all.size,
    events: events.length,
    gaps: { ...told(gaps), missing: gaps.reduce((sum, gap) => sum + gap.to - gap.from + 1, 0) },
    duplicates: told(duplicates) as StreamReport['duplicates'],
    inversions: told(inversions) as StreamReport['inversions'],
    divergences: told(divergences) as StreamReport['divergences'],
  }
}

const UNBOUNDED = { examples: 1000, openGaps: 1000, ids: 1000 }

/** Numbers lie close together: most deliveries meet another one. */
const anyEvent: fc.Arbitrary<SeenEvent> = fc.record({
  topic: fc.constantFrom('trades', 'orders'),
  key: fc.constantFrom('a', 'b'),
  seq: fc.integer({ min: 1, max: 25 }),
})
const eventWithId = anyEvent.chain((event) =>
  fc.constantFrom('x', 'y').map((id) => ({ ...event, id: `${id}-${event.seq}` })),
)

describe('against a model that remembers everything', () => {
  test.each([1, 'first'] as const)('agrees for any input, beginning with %s', (begin) => {
    fc.assert(
      fc.property(fc.array(fc.oneof(eventWithId, anyEvent), { maxLength: 120 }), (events) => {
        const { forgottenGaps, ...report } = verify(events, { ...UNBOUNDED, start: begin })
        expect(forgottenGaps).toBe(0)
        expect(report).toEqual(model(events, begin))
      }),
      { numRuns: 500 },
    )
  })

  test('still reports missing and reordered events with room for one gap', () => {
    fc.assert(
      fc.property(fc.array(anyEvent, { maxLength: 60 }), (events) => {
        const [report, whole] = [verify(events, { openGaps: 1 }), model(events)]
        expect(report.inOrder).toBe(whole.inOrder)
        expect(report.gaps.missing).toBeGreaterThanOrEqual(whole.gaps.missing)
      }),
      { numRuns: 500 },
    )
  })

  test('keeps the first examples, and all counts', () => {
    fc.assert(
      fc.property(fc.array(eventWithId, { maxLength: 120 }), fc.nat({ max: 5 }), (events, examples) => {
        const [report, whole] = [verify(events, { ...UNBOUNDED, examples }), model(events)]
        for (const kind of ['gaps', 'duplicates', 'inversions', 'divergences'] as const) {
          expect(report[kind].count).toBe(whole[kind].count)
          expect(report[kind].examples).toEqual(whole[kind].examples.slice(0, examples))
        }
      }),
    )
  })

  test('does not change its state when it is read', () => {
    fc.assert(
      fc.property(fc.array(eventWithId, { maxLength: 40 }), (events) => {
        const verifier = new StreamVerifier(UNBOUNDED)
        for (const event of events) {
          verifier.see(event)
          verifier.report()
        }
        expect(verifier.report()).toEqual(verify(events, UNBOUNDED))
      }),
    )
  })
})

/** Streams without a fault, woven into each other. */
const clean: fc.Arbitrary<SeenEvent[]> = fc
  .array(fc.constantFrom('a', 'b', 'c'), { minLength: 12, maxLength: 80 })
  .map((keys) => {
    const last = new Map<string, number>()
    return keys.map((key) => {
      const seq = (last.get(key) ?? 0) + 1
      last.set(key, seq)
      return { topic: 'trades', key, seq, id: `${key}-${seq}` }
    })
  })

/** A clean delivery with a place in it whose stream continues after it. */
const cleanWithPlace = fc
  .tuple(clean, fc.nat())
  .map(([events, n]) => {
    const going = events.flatMap(({ key, seq }, place) =>
      events.some((each) => each.key === key && each.seq > seq) ? [place] : [],
    )
    return { events, place: going[n % Math.max(1, going.length)] ?? -1 }
  })
  .filter(({ place }) => place >= 0)

/** Plants one fault, and has judged what is reported. */
function planted(
  plant: (events: SeenEvent[], place: number) => SeenEvent[],
  judge: (report: StreamReport, event: SeenEvent) => void,
): void {
  fc.assert(
    fc.property(cleanWithPlace, ({ events, place }) => {
      judge(verify(plant(events, place)), events[place] as SeenEvent)
    }),
  )
}

const counts = ({ gaps, duplicates, inversions, divergences }: StreamReport): number[] =>
  [gaps, duplicates, inversions, divergences].map(({ count }) => count)

describe('planted faults', () => {
  test('reports nothing without a fault', () => {
    fc.assert(
      fc.property(clean, (events) => {
        const report = verify(events)
        expect(report.inOrder).toBe(true)
        expect(counts(report)).toEqual([0, 0, 0, 0])
        expect(report.events).toBe(events.length)
      }),
    )
  })

  test('reports a lost event', () => {
    planted(
      (events, place) => events.toSpliced(place, 1),
      (report, { topic, key, seq }) => {
        expect(report.inOrder).toBe(false)
        expect(counts(report)).toEqual([1, 0, 0, 0])
        expect(report.gaps).toEqual({ count: 1, missing: 1, examples: [{ topic, key, from: seq, to: seq }] })
      },
    )
  })

  test('reports a duplicate', () => {
    planted(
      (events, place) => [...events, events[place] as SeenEvent],
      (report, { topic, key, seq }) => {
        expect(report.inOrder).toBe(true)
        expect(counts(report)).toEqual([0, 1, 0, 0])
        expect(report.duplicates.examples).toEqual([{ topic, key, seq }])
      },
    )
  })

  test('reports an event that its successor overtakes', () => {
    planted(
      (events, place) => {
        const { key, seq } = events[place] as SeenEvent
        const next = events.findIndex((each) => each.key === key && each.seq === seq + 1)
        return events.with(place, events[next] as SeenEvent).with(next, events[place] as SeenEvent)
      },
      (report, { topic, key, seq }) => {
        expect(report.inOrder).toBe(false)
        expect(counts(report)).toEqual([0, 0, 1, 0])
        expect(report.inversions.examples).toEqual([{ topic, key, seq, after: seq + 1 }])
      },
    )
  })

  test('reports a number that comes again with another id', () => {
    planted(
      (events, place) => [...events, { ...(events[place] as SeenEvent), id: 'another' }],
      (report, { topic, key, seq, id: knownId }) => {
        expect(report.inOrder).toBe(false)
        expect(counts(report)).toEqual([0, 0, 0, 1])
        expect(report.divergences.examples).toEqual([{ topic, key, seq, id: 'another', knownId }])
      },
    )
  })
})

describe('bounds', () => {
  const stream = (numbers: Iterable<number>): SeenEvent[] =>
    Array.from(numbers, (seq) => ({ topic: 'trades', key: 'a', seq, id: `id-${seq}` }))
  const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n + 1)

  test('forgets gaps beyond the bound, and keeps reporting them', () => {
    const numbers = upTo(100_000).filter((seq) => seq % 10 !== 0)
    const report = verify(stream(numbers), { openGaps: 100, examples: 2 })
    expect(report.gaps).toEqual({
      count: 9999,
      missing: 9999,
      examples: [
        { topic: 'trades', key: 'a', from: 10, to: 10 },
        { topic: 'trades', key: 'a', from: 20, to: 20 },
      ],
    })
    expect(report.forgottenGaps).toBe(9899)
  })

  test('keeps a forgotten gap when it is filled, and counts its number as a duplicate', () => {
    const report = verify(stream([1, 3, 5, 2]), { openGaps: 1 })
    expect(report.forgottenGaps).toBe(1)
    expect(report.gaps.examples.map(({ from }) => from)).toEqual([2, 4])
    expect(counts(report)).toEqual([2, 1, 0, 0])
  })

  test('remembers the ids of the newest numbers', () => {
    const again = (seq: number): SeenEvent[] => [...stream(upTo(10)), { topic: 'trades', key: 'a', seq, id: 'another' }]
    expect(counts(verify(again(8), { ids: 3 }))).toEqual([0, 0, 0, 1])
    expect(counts(verify(again(7), { ids: 3 }))).toEqual([0, 1, 0, 0])
    expect(counts(verify(again(10), { ids: 0 }))).toEqual([0, 1, 0, 0])
  })

  test('accepts a log that begins anywhere', () => {
    expect(verify(stream([41, 42, 43]), { start: 'first' }).inOrder).toBe(true)
    expect(verify(stream([41, 42, 43])).gaps).toMatchObject({ count: 1, missing: 40 })
    expect(counts(verify(stream([41, 42, 39]), { start: 'first' }))).toEqual([1, 0, 1, 0])
  })

  test('compares uuids without case', () => {
    const [event] = stream([1]) as [SeenEvent]
    expect(counts(verify([event, { ...event, id: 'ID-1' }]))).toEqual([0, 1, 0, 0])
  })

  test('rejects invalid events', () => {
    const good = { topic: 'trades', key: 'a', seq: 1 }
    for (const bad of [{ seq: 0 }, { seq: 1.5 }, { seq: '1' }, { topic: '' }, { key: undefined }]) {
      expect(() => new StreamVerifier().see({ ...good, ...bad } as SeenEvent)).toThrow(InvalidOptionError)
    }
    for (const bad of [{ examples: -1 }, { openGaps: 0 }, { ids: 0.5 }, { start: 2 }]) {
      expect(() => new StreamVerifier(bad as StreamVerifierOptions)).toThrow(InvalidOptionError)
    }
  })
})
