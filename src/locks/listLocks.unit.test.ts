import { expect, test } from 'vitest'
import { toListing } from './listLocks.ts'
import type { LockListRow } from './lockList.sql.ts'

const nothing: LockListRow = {
  kind: 'lock',
  id: null,
  key: null,
  pid: null,
  mode: null,
  granted: null,
  waited: null,
  blocker: null,
  awaits: null,
  application: null,
  state: null,
  held: null,
  statement: null,
}

function holds(id: number, pid: number | null, more: Partial<LockListRow> = {}): LockListRow {
  const who = pid === null ? null : String(pid)
  return { ...nothing, id: String(id), pid: who, mode: 'exclusive', granted: 'true', ...more }
}

function waits(id: number, pid: number, more: Partial<LockListRow> = {}): LockListRow {
  return holds(id, pid, { granted: 'false', waited: '5', ...more })
}

test('sorts by waiters, then by the time held', () => {
  const rows = [
    holds(1, 11, { held: '50' }),
    holds(2, 12, { held: '10' }),
    holds(3, 13, { held: '90' }),
    holds(4, 14),
    waits(2, 15),
    holds(5, 16, { held: '1' }),
  ]
  const queued = [{ id: 5n, key: 'Queued:here', waiting: 3 }] as const
  expect(toListing(rows, queued).locks.map(({ id }) => id)).toEqual([5n, 2n, 3n, 1n, 4n])
})

test('lists a prepared transaction without a backend', () => {
  const { locks, tree } = toListing(
    [holds(1, null, { application: 'a gid', state: 'prepared', held: '7' }), waits(1, 15)],
    [],
  )
  expect(locks[0]?.holders).toEqual([
    { pid: 0, application: 'a gid', state: 'prepared', heldForMs: 7, mode: 'exclusive' },
  ])
  expect(tree).toMatchObject([{ pid: 0, application: 'a gid', blocks: [{ pid: 15 }] }])
})

test('shows waits for other locks as edges', () => {
  const edge: LockListRow = {
    ...nothing,
    kind: 'edge',
    pid: '12',
    blocker: '99',
    awaits: 'relation',
    application: 'migration',
    state: 'active',
  }
  const behind: LockListRow = { ...edge, pid: '99', blocker: '98', awaits: 'tuple', application: 'report' }
  const unrelated: LockListRow = { ...edge, pid: '50', blocker: '51' }
  const { tree } = toListing([holds(1, 12), waits(1, 13), edge, behind, unrelated], [])
  expect(tree).toMatchObject([
    {
      pid: 98,
      application: 'report',
      blocks: [
        {
          pid: 99,
          application: 'migration',
          waitsFor: { kind: 'tuple' },
          blocks: [{ pid: 12, waitsFor: { id: undefined, kind: 'relation' }, blocks: [{ pid: 13 }] }],
        },
      ],
    },
  ])
  expect(tree).toHaveLength(1)
})

test('resolves keys of this process itself', () => {
  const queued = [
    { id: 1n, key: 'Held:here', waiting: 0 },
    { id: 2n, key: 'Asked:for', waiting: 0 },
    { id: 3n, key: 'Waited:for', waiting: 2 },
  ] as const
  const { locks } = toListing([holds(1, 12)], queued)
  expect(locks.map(({ key, queued: waiting, holders }) => [key, waiting, holders.length])).toEqual([
    ['Waited:for', 2, 0],
    ['Held:here', 0, 1],
  ])
})

test('returns no negative time after a clock step', () => {
  const { locks } = toListing([holds(1, 12, { held: '-3' }), waits(1, 13, { waited: null })], [])
  expect(locks[0]?.holders[0]?.heldForMs).toBe(0)
  expect(locks[0]?.waiters[0]?.waitedMs).toBe(0)
})
