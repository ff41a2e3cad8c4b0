import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { cardTexts, marked } from '../../proofs/show/code.ts'
import type { CardState } from '../../proofs/show/state.ts'
import { type RaceSite, startRaceSite } from '../testing/raceSite.ts'

/** A busy machine takes long until all is quiet. */
const JUDGED_WITHIN_MS = 200_000

describe('the race by its API', () => {
  let site: RaceSite

  beforeAll(async () => {
    site = await startRaceSite()
  })
  afterAll(() => site?.close())

  const post = (path: string, body: unknown = {}): Promise<Response> =>
    fetch(`${site.origin}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
  const stateOf = async (card: string): Promise<CardState | undefined> => {
    const { cards } = (await (await fetch(`${site.origin}/show/cards`)).json()) as { cards: CardState[] }
    return cards.find((state) => state.card === card)
  }

  test('rejects what is not bounded, and cards and faults that are not there', async () => {
    for (const body of [{}, { callers: 1001 }, { callers: 0 }, { callers: 10, seconds: 61 }, { callers: '10' }])
      expect((await post('/show/cards/wallets/hammer', body)).status).toBe(400)
    expect((await post('/show/cards/coins/hammer', { callers: 10 })).status).toBe(404)
    expect((await post('/show/cards/wallets/faults/flood')).status).toBe(404)
    expect(site.show.staged).toBe(false)
  })

  test('runs both sides, counts violations on the naive side alone, and ends by itself', async () => {
    const stream = await fetch(`${site.origin}/show/stream`)
    const reader = stream.body?.pipeThrough(new TextDecoderStream()).getReader()
    expect(await reader?.read()).toEqual({ done: false, value: 'data: {"cards":[]}\n\n' })
    expect((await post('/show/cards/wallets/hammer', { callers: 20, seconds: 8 })).status).toBe(202)
    expect((await post('/show/cards/wallets/faults/kill')).status).toBe(202)
    await expect
      .poll(async () => (await stateOf('wallets'))?.judged, { interval: 100, timeout: JUDGED_WITHIN_MS })
      .toBe(true)
    const state = (await stateOf('wallets')) as CardState
    expect(state).toMatchObject({ phase: 'idle', callers: 20, striking: [], lockstep: { violations: 0, broken: [] } })
    expect(state.naive.violations).toBeGreaterThan(0)
    expect(state.naive.broken[0]).toMatchObject({ invariant: 'never below zero' })
    expect(state.lockstep.done).toBeGreaterThan(0)
    expect(state.timeline.map(({ kind }) => kind)).toEqual(
      expect.arrayContaining(['hammer', 'kill', 'violation', 'end']),
    )
    expect(await reader?.read()).toMatchObject({ value: expect.stringContaining('"card":"wallets"') as unknown })
    await reader?.cancel()
    expect(site.said).toEqual([])
  })
})

describe('the code of the cards', async () => {
  const texts = await cardTexts()

  test.each(
    texts.flatMap(({ card, code }) => [
      [card, 'naive', code.naive.text],
      [card, 'lockstep', code.lockstep.text],
    ]),
  )('shows 10 to 20 lines of %s, %s', (_, __, code) => {
    const lines = code.split('\n')
    expect(lines.length).toBeGreaterThanOrEqual(10)
    expect(lines.length).toBeLessThanOrEqual(20)
    expect(code).not.toContain('operation.tell')
  })

  test('leaves out what is not marked', () => {
    const source = [
      'a',
      '  // code: naive',
      '    b',
      "      operation.tell('read')",
      '      c',
      '  // code: end',
      'd',
      '// code: both',
      'e',
      '// code: end',
    ]
    expect(marked(source.join('\n'), 'naive')).toEqual(['b\n  c', 'e'])
    expect(marked(source.join('\n'), 'lockstep')).toEqual(['e'])
  })
})
