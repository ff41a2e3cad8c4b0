import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Entry, FaultEntry, History, Violation, What } from '../history.ts'
import { brokenXml, overlaps, textsOf } from './testing/pictureText.ts'
import { lateHolder, lostUpdate, Story, violationOf } from './testing/stories.ts'
import { timeline } from './timeline.ts'

test('shows a lost update: reads, writes, results, and the violation', () => {
  const { history, violation } = lostUpdate()
  const svg = timeline(history, violation)
  const texts = textsOf(svg)
  expect(texts.map(({ text }) => text)).toEqual(
    expect.arrayContaining([
      'mutual exclusion',
      violation.text,
      'w1',
      'w2',
      'w1.7',
      'w2.4',
      'read 5',
      'wrote 6',
      'broken here',
      '104 ms',
    ]),
  )
  expect(texts.filter(({ text }) => text === 'done: 6').map(({ look }) => look.includes('breach'))).toEqual([
    false,
    true,
  ])
  expect(svg).toContain('<svg xmlns="http://www.w3.org/2000/svg" class="race" viewBox="0 0 1200 ')
  expect(svg).toContain('role="img"')
  expect(svg).toMatch(/<title id="race-title">mutual exclusion broken: wallet, naive form, Wallet:3/)
  expect(svg).toContain('w1.7: read 5, wrote 6, done: 6')
})

test('places signs in order of time, from left to right', () => {
  const { history, violation } = lostUpdate()
  const at = new Map(
    textsOf(timeline(history, violation)).map(({ text, look, box }) => [
      `${text} ${look.includes('breach')}`,
      box.left,
    ]),
  )
  expect(at.get('read 5 false')).toBeLessThan(at.get('wrote 6 false') ?? 0)
  expect(at.get('wrote 6 false')).toBeLessThan(at.get('done: 6 true') ?? 0)
})

test('shows a late holder: fences, the stop, the overlap, and the final state', () => {
  const { history, violation } = lateHolder()
  const svg = timeline(history, violation, { id: 'late' })
  const texts = textsOf(svg).map(({ text }) => text)
  expect(texts).toEqual(
    expect.arrayContaining([
      'w1.1 · fence 7',
      'w2.1 · fence 8',
      'stopped',
      'took A (w1.1)',
      'found A',
      'outside',
      'database',
      'all hold at once',
    ]),
  )
  expect(svg).toContain('url(#late-breach)')
  expect(svg).toContain('url(#late-fault)')
  // Seconds in which nothing happens are left out.
  expect(texts.filter((text) => /^\+.* m?s$/.test(text)).length).toBeGreaterThan(0)
})

test('does not draw holding after the last claim of a holder', () => {
  const story = new Story('lease', 'Report')
    .tell(0, 'w1.1', 'asked')
    .tell(1, 'w1.1', 'granted')
    .tell(2, 'w1.1', 'active')
    .tell(40, 'w1.1', 'active')
    .tell(100, 'w1.1', 'released')
    .tell(100, 'w1.1', 'failed', undefined, { note: 'LOCKSTEP_LEASE_LOST' })
    .tell(3, 'w2.1', 'asked')
    .tell(50, 'w2.1', 'granted')
    .tell(51, 'w2.1', 'active')
    .tell(90, 'w2.1', 'active')
    .tell(91, 'w2.1', 'done')
  const svg = timeline(story.history(), violationOf(story, 'nothing, really', ['w1.1', 'w2.1'], 60))
  expect(svg).not.toContain('url(#race-breach)')
})

test('draws two holds of a holder that released and was granted again', () => {
  const story = new Story('leader', 'Office')
    .tell(0, 'w1.1', 'asked')
    .tell(1, 'w1.1', 'active')
    .tell(20, 'w1.1', 'active')
    .tell(21, 'w1.1', 'released')
    .tell(60, 'w1.1', 'active')
    .tell(80, 'w1.1', 'active')
    .tell(81, 'w1.1', 'done')
    .tell(2, 'w2.1', 'asked')
    .tell(25, 'w2.1', 'active')
    .tell(55, 'w2.1', 'active')
    .tell(90, 'w2.1', 'done')
  const pictureAt = (ms: number): string => timeline(story.history(), violationOf(story, '', ['w1.1', 'w2.1'], ms))
  expect(pictureAt(40)).not.toContain('url(#race-breach)')
  story.tell(70, 'w2.1', 'active')
  expect(pictureAt(60)).toContain('url(#race-breach)')
})

test('draws effects without an operation in the lane of their observer', () => {
  const story = new Story('transfers', 'Account:1')
    .tell(0, 'w1.1', 'asked')
    .tell(9, 'w1.1', 'done')
    .tell(5, '', 'failed', undefined, { by: 'w1', note: '40P01 deadlock' })
    .tell(90, 'w1.1', 'found', undefined, { by: 'database', key: 'effect:Account:1' })
    .tell(90, '', 'found', undefined, { by: 'database', key: 'effect:Account:2' })
    .tell(1, 'w2.1', 'asked')
    .tell(90, 'w2.1', 'found', undefined, { by: 'database', key: 'effect:Account:1' })
  const texts = textsOf(timeline(story.history(), violationOf(story, '', ['w1.1'], 9))).map(({ text }) => text)
  expect(texts).toEqual(expect.arrayContaining(['failed: 40P01 deadlock', 'found its effect']))
  expect(texts.filter((text) => text.startsWith('found its effect'))).toHaveLength(1)
  const held = timeline(
    { ...story.history(), entries: story.history().entries.slice(-1) },
    violationOf(story, 'x', [], 90),
  )
  expect(brokenXml(held)).toBeUndefined()
})

test('draws a killed worker without an end, and its restart in another lane', () => {
  const story = new Story('wallet', 'Wallet:1')
    .tell(0, 'w2.1', 'asked')
    .tell(1, 'w2.1', 'wrote', 6)
    .fault(2, 2, 'killed', 'w2')
    .tell(5, "w2'.2", 'asked')
    .tell(8, "w2'.2", 'done', 6)
  const texts = textsOf(timeline(story.history(), violationOf(story, 'lost', ['w2.1', "w2'.2"], 8))).map(
    ({ text }) => text,
  )
  expect(texts).toEqual(expect.arrayContaining(['w2.1 · no end', 'killed', 'end unknown', "w2'", 'after a kill']))
})

test('ends the bar of a killed worker at the kill', () => {
  const widthWith = (fault: string): number => {
    const story = new Story('wallet', 'Wallet:1')
      .tell(0, 'w2.1', 'asked')
      .tell(1, 'w2.1', 'wrote', 6)
      .fault(2, 2, fault, 'w2')
      .tell(5, 'w3.1', 'asked')
      .tell(8, 'w3.1', 'done', 6)
    const svg = timeline(story.history(), violationOf(story, 'lost', ['w2.1', 'w3.1'], 8))
    return Number(/width="([\d.]+)"[^>]*stroke-dasharray="4 3"/.exec(svg)?.[1])
  }
  expect(widthWith('connection cut')).toBeGreaterThan(800)
  expect(widthWith('killed')).toBeCloseTo(widthWith('connection cut') / 4, 0)
})

test('escapes all text, also hostile ids', () => {
  const bad = '"><script>alert(1)</script>&\u0000\uD800'
  const story = new Story(bad, bad)
    .tell(0, `w1.${bad}`, 'asked', undefined, { by: bad })
    .tell(1, `w1.${bad}`, 'read', bad, { by: bad })
    .tell(2, `w1.${bad}`, 'failed', undefined, { by: bad, note: bad, fence: bad })
    .tell(3, '', 'took', bad, { by: 'outside' })
    .fault(1, 2, bad, 'database')
  const violation = { ...violationOf(story, bad, [`w1.${bad}`], 2), invariant: bad }
  const svg = timeline(story.history(), violation, { id: bad })
  expect(svg).not.toContain('<script')
  expect(brokenXml(svg)).toBeUndefined()
  expect(svg).toContain('&lt;script&gt;')
})

test('shows at most 8 lanes and 20 operations of a busy key, and always those of the violation', () => {
  const story = new Story('wallet', 'Wallet:1')
  for (let worker = 1; worker <= 12; worker++) {
    for (let turn = 0; turn < 6; turn++) {
      const op = `w${worker}.${turn}`
      story.tell(turn * 3 + worker / 20, op, 'asked').tell(turn * 3 + 2, op, 'done', turn)
    }
  }
  const svg = timeline(story.history(), violationOf(story, 'both', ['w11.0', 'w12.5'], 17))
  const texts = textsOf(svg).map(({ text }) => text)
  expect(texts).toEqual(expect.arrayContaining(['w11.0', 'w12.5', 'w11', 'w12']))
  expect(texts.filter((text) => text === 'process').length).toBeLessThanOrEqual(8)
  expect(texts.filter((text) => /^w\d+\.\d$/.test(text)).length).toBeLessThanOrEqual(20)
})

test('does not move earlier and later operations of others into the picture', () => {
  const story = new Story('wallet', 'Wallet:1')
    .tell(0, 'w3.1', 'asked')
    .tell(1, 'w3.1', 'read', 41)
    .tell(102, 'w3.1', 'wrote', 42)
    .tell(500, 'w3.1', 'done', 43)
    .tell(100, 'w1.1', 'asked')
    .tell(104, 'w1.1', 'done', 1)
  const texts = textsOf(timeline(story.history(), violationOf(story, 'so', ['w1.1'], 104))).map(({ text }) => text)
  expect(texts).toContain('wrote 42')
  expect(texts).not.toContain('read 41')
  expect(texts).not.toContain('done: 43')
})

test('shows the sentence of a violation without a place', () => {
  const story = new Story('transfers', '')
  const svg = timeline(story.history(), violationOf(story, 'The total is 997.', [], 5))
  expect(textsOf(svg).map(({ text }) => text)).toContain('The total is 997.')
  expect(brokenXml(svg)).toBeUndefined()
})

const whats: readonly What[] = [
  'granted',
  'read',
  'wrote',
  'active',
  'released',
  'took',
  'found',
  'done',
  'failed',
  'unknown',
]

const operation = fc.record({
  by: fc.constantFrom('w1', 'w2', "w2'", 'w3', 'w4', 'w5', 'w6', 'w7', 'w8', 'w9'),
  from: fc.integer({ min: 0, max: 20_000 }),
  steps: fc.array(
    fc.record({
      after: fc.oneof(fc.integer({ min: 0, max: 300 }), fc.integer({ min: 0, max: 900_000 })),
      what: fc.constantFrom(...whats),
      value: fc.option(fc.oneof(fc.integer(), fc.string({ maxLength: 30 })), { nil: undefined }),
    }),
    { maxLength: 7 },
  ),
})

const fault = fc.record({
  at: fc.integer({ min: 0, max: 500_000 }),
  lasts: fc.integer({ min: 0, max: 500_000 }),
  fault: fc.constantFrom('killed', 'stopped', 'COMMIT cut', 'connection half open for a long time'),
  on: fc.constantFrom('w1', 'w2', 'w3', 'database', 'w1, w2'),
})

const telling = fc
  .record({
    operations: fc.array(operation, { maxLength: 30 }),
    faults: fc.array(fault, { maxLength: 6 }),
    named: fc.integer({ min: 0, max: 5 }),
    text: fc.string({ maxLength: 400 }),
    at: fc.integer({ min: 0, max: 1_000_000 }),
  })
  .map(({ operations, faults, named, text, at }): { history: History; violation: Violation } => {
    const names = operations.map(({ by }, index) => `${by}-${index}`)
    const entries = operations.flatMap(({ by, from, steps }, index): Entry[] => {
      let now = from
      const common = { scenario: 'any', op: names[index] ?? '', key: 'Key' }
      const told = steps.map(({ after, what, value }): Entry => {
        now += after
        const where = what === 'took' ? 'outside' : what === 'found' ? 'database' : by
        return { ...common, at: now, by: where, what, ...(value === undefined ? {} : { value }) }
      })
      return [{ ...common, at: from, by, what: 'asked' }, ...told]
    })
    const struck = faults.map(({ lasts, ...each }): FaultEntry => ({ ...each, until: each.at + lasts, struck: 1 }))
    const violation = { invariant: 'any', scenario: 'any', key: 'Key', text, ops: names.slice(0, named), at }
    const sorted = entries.toSorted((one, other) => one.at - other.at)
    return { history: { scenario: 'any', form: 'naive', entries: sorted, faults: struck }, violation }
  })

test('draws any history without overlapping or cut text', () => {
  fc.assert(
    fc.property(telling, ({ history, violation }) => {
      const svg = timeline(history, violation)
      const height = Number(/viewBox="0 0 1200 (\d+)"/.exec(svg)?.[1])
      const texts = textsOf(svg)
      expect(brokenXml(svg)).toBeUndefined()
      expect(overlaps(texts)).toEqual([])
      expect(texts.filter(({ box }) => box.left < 0 || box.right > 1200 || box.bottom > height)).toEqual([])
      expect(svg).not.toMatch(/NaN|Infinity|undefined/)
    }),
    { numRuns: 150 },
  )
})
