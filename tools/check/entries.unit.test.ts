import { expect, test } from 'vitest'
import { entryFaults, pathFaults } from './entries.ts'

const always = (): boolean => true
const base = {
  '.': './dist/index.js',
  './console': './dist/console/index.js',
  './http': './dist/http/index.js',
  './nest': './dist/nest/index.js',
  './observe': './dist/observe/index.js',
  './sinks': './dist/sinks/index.js',
  './testing': './dist/testing/index.js',
  './package.json': './package.json',
}

test('accepts the published modules, and products by their own names', () => {
  expect(entryFaults({ ...base, './kafka': './dist/sinks/kafka.js' }, always)).toEqual([])
})

test('reports a published module without an entry', () => {
  const { './http': _, ...without } = base
  expect(entryFaults(without, always)).toEqual(['exports has no "./http"'])
})

test('reports an entry whose files are missing', () => {
  const has = (path: string): boolean => path !== 'dist/index.d.ts'
  expect(entryFaults(base, has)).toEqual(['"." needs dist/index.d.ts, which is not there'])
})

test.each([
  [{ './locks': './dist/locks/index.js' }],
  [{ './http': './dist/rows/index.js' }],
  [{ './key': './dist/locks/key.js' }],
  [{ './http': './src/http/index.ts' }],
  [{ './http': { import: './dist/http/index.js' } }],
])('rejects %j', (entry) => {
  expect(entryFaults({ ...base, ...entry }, always)).toHaveLength(1)
})

test('reports paths to files that users do not have, and entries without a path', () => {
  const map = { '.': './dist/index.js', './http': './dist/http/index.js', './package.json': './package.json' }
  const from = (target: string): string => target.replace('dist', 'src').replace('.js', '.ts')
  const right = { 'pg-lockstep': ['./src/index.ts'], 'pg-lockstep/http': ['./src/http/index.ts'] }
  expect(pathFaults('tsconfig.json', right, map, from)).toEqual([])
  expect(pathFaults('tsconfig.json', { ...right, 'pg-lockstep/*': ['./src/*/index.ts'] }, map, from)).toHaveLength(1)
  expect(pathFaults('tsconfig.json', { 'pg-lockstep': ['./src/index.ts'] }, map, from)).toHaveLength(1)
})
