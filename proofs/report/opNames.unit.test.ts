import { expect, test } from 'vitest'
import { shortOp, withShortOps } from './opNames.ts'

test('omits round and scenario from names', () => {
  expect(shortOp("r3.w2'.wallet.0.17", 'wallet')).toBe("w2'.0.17")
  expect(shortOp('r3.w1.lease.0.17', 'wallet')).toBe('w1.lease.0.17')
  expect(shortOp('wallet', 'wallet')).toBe('wallet')
  expect(shortOp('w1-7', 'wallet')).toBe('w1-7')
})

test('names operations in a sentence as in the picture, each once', () => {
  const ops = ['r3.w1.wallet.0.1', 'r3.w1.wallet.0.17']
  const text = 'lost update: w1 (r3.w1.wallet.0.17) and w1 (r3.w1.wallet.0.1) received 6, r3.w1.wallet.0.1 twice'
  expect(withShortOps(text, ops, 'wallet')).toBe('Lost update: w1.0.17 and w1.0.1 received 6, w1.0.1 twice')
  expect(withShortOps('w1 (r3.w1.wallet.0.1) went', ops, 'wallet')).toBe('w1.0.1 went')
})
