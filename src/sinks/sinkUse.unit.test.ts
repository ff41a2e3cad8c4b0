import { expect, test } from 'vitest'
import { signal } from '../../tools/server/testing/workbench.ts'
import { SinkUse } from './sinkUse.ts'

test('can be used without open() until it is closed', async () => {
  const use = new SinkUse()
  expect(use.closed).toBe(false)
  await use.close()
  expect(use.closed).toBe(true)
})

test('opens again after close()', async () => {
  const use = new SinkUse()
  await use.open()
  await use.close()
  await use.open()
  expect(use.closed).toBe(false)
})

test('stays open until its last user closes it', async () => {
  let released = 0
  const use = new SinkUse(() => void released++)
  await use.open()
  await use.open()
  await use.close()
  expect([use.closed, released]).toEqual([false, 0])
  await use.close()
  expect([use.closed, released]).toEqual([true, 1])
})

test('waits on close() for work in progress, and on open() for a close in progress', async () => {
  const order: string[] = []
  const work = signal()
  const use = new SinkUse(() => void order.push('released'))
  await use.open()
  const sending = use.track(work.given.then(() => order.push('sent')))
  const closing = use.close().then(() => order.push('closed'))
  const opening = use.open().then(() => order.push('opened'))
  expect(use.closed).toBe(true)
  work.give()
  await Promise.all([sending, closing, opening])
  expect(order.slice(0, 2)).toEqual(['sent', 'released'])
  expect(use.closed).toBe(false)
})

test('closes after work has failed', async () => {
  const use = new SinkUse()
  const failing = use.track(Promise.reject(new Error('no'))).catch(() => 'failed')
  await use.close()
  expect(await failing).toBe('failed')
})
