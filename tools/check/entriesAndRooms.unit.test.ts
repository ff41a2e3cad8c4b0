import { expect, test } from 'vitest'
import { entryFaults } from './entriesAndRooms.ts'

const always = (): boolean => true
const base = { '.': './dist/index.js', './package.json': './package.json' }

test('an entry a room, a room an entry, and products by their own names', () => {
  const map = { ...base, './locks': './dist/locks/index.js', './kafka': './dist/sinks/kafka.js' }
  expect(entryFaults(map, ['locks', 'cli'], always)).toEqual([])
})

test('a room without an entry is found', () => {
  expect(entryFaults(base, ['locks'], always)).toEqual(['src/locks/index.ts has no entry "./locks"'])
})

test('an entry whose files are missing is found', () => {
  const has = (path: string): boolean => !path.endsWith('.d.ts')
  expect(entryFaults(base, [], has)).toEqual(['"." needs dist/index.d.ts, which is not there'])
})

test.each([
  [{ './locks': './dist/rows/index.js' }],
  [{ './key': './dist/locks/key.js' }],
  [{ './locks': './src/locks/index.ts' }],
  [{ './locks': { import: './dist/locks/index.js' } }],
])('%j is refused', (entry) => {
  expect(entryFaults({ ...base, ...entry }, [], always)).toHaveLength(1)
})
