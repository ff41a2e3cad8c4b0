import { expect, test } from 'vitest'
import { plainText } from './plainText.ts'

test.each([
  [
    '2 held long instance 3.1.1 at once, where one may: w3 (r3.w3.instance.12.1) from 446.064 to 1493.399 ms and w2 (r3.w2.instance.29.4) from 1277.648 to 1398.035 ms',
    '2 held Instance 2 at once, where one may: w3 from 446 to 1493 ms and w2 from 1277 to 1398 ms',
  ],
  ['portfolio 1.2 #5 came when #4 was next; #4 never came', 'Portfolio C #5 came when #4 was next; #4 never came'],
  [
    "w1'' (r7.w1''.bids.3.9) was ended by the server at wallet 7.3, twice",
    "w1'' was ended by the server at Dan, twice",
  ],
  [
    '58 positions are there for S5.0: r5.w2.position.0.0, r5.w2.position.4.0 and 56 more',
    '58 positions are there for signal #0',
  ],
  [
    "the world outside took 2 positions for S5.24: r5.w1'.position.3.1 and r5.w2.position.1.7",
    'the exchange took 2 positions for signal #24',
  ],
  ['r9.w1.position.4.2 is there twice', 'an operation of w1 is there twice'],
  [
    "the world outside took 2 positions for S5.24: o1 from w1' (r5.w1'.position.3.1) and o2 from w2 (r5.w2.position.1.7)",
    'the exchange took 2 positions for signal #24',
  ],
  ['account 4.0 > account 4.1 holds 7', 'Anna > Ben holds 7'],
  ['4150 instead of 4000', '4150 instead of 4000'],
])('%s', (text, plain) => {
  expect(plainText(text)).toBe(plain)
})
