import { expect, test } from 'vitest'
import type { Entry } from '../../history.ts'
import { holders } from './holders.ts'

const active = (key: string, op: string, by: string, ms: number): Entry => ({
  at: ms * 1000,
  by,
  scenario: 'instance',
  op,
  what: 'active',
  key,
})

test('does not draw a short and a long instance in one row', () => {
  const picture = holders()
  for (const [key, op, by] of [
    ['long instance 7.0.0', 'a', 'w1'],
    ['short instance 7.1.0', 'b', 'w2'],
  ] as const)
    for (const ms of [100, 200]) picture.see(active(key, op, by, ms))
  expect(picture.picture(300)).toMatchObject({
    kind: 'holders',
    tracks: [
      { name: 'Instance 1', holdings: [{ by: 'w1', fromMs: 100, toMs: 200, clash: false }] },
      { name: 'Instance 2', holdings: [] },
    ],
  })
})

test('shows an instance with a clash, and both holders in red', () => {
  const picture = holders()
  picture.see(active('long instance 7.0.0', 'a', 'w1', 100))
  for (const [op, ms] of [
    ['b', 100],
    ['c', 120],
    ['b', 200],
    ['c', 220],
  ] as const)
    picture.see(active('short instance 7.1.4', op, op === 'b' ? 'w1' : 'w3', ms))
  expect(picture.picture(300)).toMatchObject({
    tracks: [{ name: 'Instance 1' }, { name: 'Instance 11', holdings: [{ clash: true }, { clash: true }] }],
  })
})
