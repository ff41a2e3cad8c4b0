import { expect, test } from 'vitest'
import { AccountQueue } from './accountQueue.ts'

const LONG_MS = 60_000

/** Work that begins, and ends on request. */
function piece(name: string, begun: string[]): { work: () => Promise<void>; end: () => void } {
  let end = (): void => undefined
  const ended = new Promise<void>((resolve) => (end = resolve))
  return {
    end,
    work: () => {
      begun.push(name)
      return ended
    },
  }
}

async function settled(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve))
}

test('runs work on shared accounts in the order of coming, and other work beside it', async () => {
  const queue = new AccountQueue(LONG_MS)
  const begun: string[] = []
  const [ab, ba, bc, de] = ['ab', 'ba', 'bc', 'de'].map((name) => piece(name, begun))
  const runs = [
    queue.run(['a', 'b'], ab!.work),
    queue.run(['b', 'a'], ba!.work),
    queue.run(['b', 'c'], bc!.work),
    queue.run(['d', 'e'], de!.work),
  ]
  await settled()
  expect(begun).toEqual(['ab', 'de'])
  ab!.end()
  await settled()
  expect(begun).toEqual(['ab', 'de', 'ba'])
  for (const { end } of [ba!, bc!, de!]) end()
  await Promise.all(runs)
  expect(begun).toEqual(['ab', 'de', 'ba', 'bc'])
})

test('refuses work that waits for too long, and keeps the order of those behind it', async () => {
  const begun: string[] = []
  const queue = new AccountQueue(20)
  const first = piece('first', begun)
  const running = queue.run(['a'], first.work)
  await expect(queue.run(['a'], piece('late', begun).work)).rejects.toMatchObject({ status: 503, code: 'unavailable' })
  await expect(queue.run(['a'], piece('later', begun).work)).rejects.toThrow('Nothing was done')
  expect(begun).toEqual(['first'])
  first.end()
  await running
  await queue.run(['a'], async () => void begun.push('after'))
  expect(begun).toEqual(['first', 'after'])
})

test('continues after work that failed, and refuses a thousand and one waiting', async () => {
  const queue = new AccountQueue(LONG_MS)
  const first = piece('first', [])
  const failing = queue.run(['a'], () => first.work().then(() => Promise.reject(new Error('no such account'))))
  const waiting = Array.from({ length: 1000 }, () => queue.run(['a'], async () => 'done'))
  await expect(queue.run(['a'], async () => 'never')).rejects.toMatchObject({ status: 503 })
  first.end()
  await expect(failing).rejects.toThrow('no such account')
  expect(new Set(await Promise.all(waiting))).toEqual(new Set(['done']))
})
