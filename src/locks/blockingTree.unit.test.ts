import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type BlockingNode, blockingTree, type Claim, type ContestedLock, type Edge, edgesOf } from './blockingTree.ts'

function claim(pid: number, mode: Claim['mode'] = 'exclusive'): Claim {
  return { pid, mode, application: `app ${pid}`, state: 'active', heldForMs: pid }
}

function lock(id: number, holders: readonly Claim[], waiters: readonly Claim[]): ContestedLock {
  return { id: BigInt(id), key: `Key:${id}`, holders, waiters }
}

/** `1(2(3) 4*)`: 1 blocks 2 and 4, 2 blocks 3, and 4 stands elsewhere with what it blocks. */
function drawing(nodes: readonly BlockingNode[]): string {
  return nodes
    .map(({ pid, repeated, blocks }) => {
      return `${pid}${repeated ? '*' : ''}${blocks.length === 0 ? '' : `(${drawing(blocks)})`}`
    })
    .join(' ')
}

const treeOf = (...locks: readonly ContestedLock[]): BlockingNode[] => blockingTree(edgesOf(locks))

describe('the blocking tree', () => {
  const shared = (pid: number): Claim => claim(pid, 'shared')

  test.each<[string, readonly ContestedLock[], string]>([
    ['no root, if no session waits', [lock(1, [claim(1)], []), lock(2, [shared(2), shared(3)], [])], ''],
    ['a chain of three', [lock(1, [claim(1)], [claim(2)]), lock(2, [claim(2)], [claim(3)])], '1(2(3))'],
    [
      'draws a chain of five, whatever the order of the locks',
      [
        lock(3, [claim(3)], [claim(4)]),
        lock(1, [claim(1)], [claim(2)]),
        lock(4, [claim(4)], [claim(5)]),
        lock(2, [claim(2)], [claim(3)]),
      ],
      '1(2(3(4(5))))',
    ],
    ['the holder blocks all who wait for it', [lock(1, [claim(1)], [claim(2), claim(3), claim(4)])], '1(2 3 4)'],
    ['several shared holders block one', [lock(1, [shared(1), shared(2)], [claim(3)])], '1(3) 2(3*)'],
    [
      'draws a session with several blockers once',
      [lock(1, [shared(1), shared(2)], [claim(3)]), lock(2, [claim(3)], [claim(4)])],
      '1(3(4)) 2(3*)',
    ],
    [
      'puts a shared waiter behind the exclusive one between two shared',
      [lock(1, [shared(1)], [claim(2), shared(3), shared(4)])],
      '1(2(3 4))',
    ],
    [
      'puts a waiter behind the nearest before it in the queue',
      [lock(1, [shared(1)], [claim(2), claim(5), shared(3)])],
      '1(2 5(3))',
    ],
    ['a session is not in its own way', [lock(1, [shared(1), shared(2)], [claim(1)])], '2(1)'],
    ['a lock without a holder at this moment', [lock(1, [], [claim(1), claim(2)])], '1(2)'],
    ['a circle of two', [lock(1, [claim(2)], [claim(1)]), lock(2, [claim(1)], [claim(2)])], '1(2(1*))'],
    [
      'draws a circle of three with a session behind it',
      [
        lock(1, [claim(12)], [claim(11)]),
        lock(2, [claim(13)], [claim(12)]),
        lock(3, [claim(11)], [claim(13), claim(2)]),
        lock(4, [claim(2)], [claim(1)]),
      ],
      '11(13(12(11*)) 2(1))',
    ],
    [
      'draws a circle beside a tree',
      [lock(1, [claim(1)], [claim(2)]), lock(2, [claim(8)], [claim(9)]), lock(3, [claim(9)], [claim(8)])],
      '1(2) 8(9(8*))',
    ],
  ])('%s', (_name, locks, expected) => {
    expect(drawing(treeOf(...locks))).toBe(expected)
  })

  test('shows what each session waits for', () => {
    const [root] = treeOf(lock(7, [claim(1)], [claim(2)]))
    expect(root).toMatchObject({ pid: 1, application: 'app 1', heldForMs: 1, waitsFor: undefined })
    expect(root?.blocks[0]).toMatchObject({ pid: 2, waitsFor: { id: 7n, key: 'Key:7', kind: 'advisory' } })
    const [circle] = treeOf(lock(1, [claim(2)], [claim(1)]), lock(2, [claim(1)], [claim(2)]))
    expect(circle?.waitsFor).toMatchObject({ id: 1n })
  })

  test('includes waits for other locks', () => {
    const behind = edgesOf([lock(1, [claim(2)], [claim(3)])])
    const row: Edge = { waiter: claim(2), blocker: claim(1), wanted: { id: undefined, key: undefined, kind: 'tuple' } }
    const [root] = blockingTree([...behind, row])
    expect(drawing(root === undefined ? [] : [root])).toBe('1(2(3))')
    expect(root?.blocks[0]?.waitsFor?.kind).toBe('tuple')
  })

  test('draws a chain of a thousand', () => {
    const locks = Array.from({ length: 1000 }, (_, n) => lock(n, [claim(n)], [claim(n + 1)]))
    expect(drawing(treeOf(...locks)).split('(')).toHaveLength(1001)
  })
})

test('contains every session that waits or blocks, for any graph', () => {
  const pid = fc.integer({ min: 1, max: 8 })
  const edge = fc.record({ waiter: pid, blocker: pid }).filter(({ waiter, blocker }) => waiter !== blocker)
  fc.assert(
    fc.property(fc.array(edge, { maxLength: 20 }), (pairs) => {
      const edges = pairs.map(({ waiter, blocker }, n) => ({
        waiter: claim(waiter),
        blocker: claim(blocker),
        wanted: { id: BigInt(n), key: undefined, kind: 'advisory' },
      }))
      const found: BlockingNode[] = []
      const collect = (node: BlockingNode): void => {
        found.push(node)
        node.blocks.forEach(collect)
      }
      blockingTree(edges).forEach(collect)
      const whole = found.filter(({ repeated }) => !repeated).map((node) => node.pid)
      const involved = new Set(pairs.flatMap(({ waiter, blocker }) => [waiter, blocker]))
      expect(new Set(whole)).toEqual(involved)
      expect(whole).toHaveLength(involved.size)
      // Every pair is an edge of the drawing, once.
      const drawn = found.flatMap((node) => node.blocks.map((below) => `${below.pid} waits for ${node.pid}`))
      expect(drawn.toSorted()).toEqual(
        [...new Set(pairs.map(({ waiter, blocker }) => `${waiter} waits for ${blocker}`))].toSorted(),
      )
    }),
  )
})
