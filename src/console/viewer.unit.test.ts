import { expect, test } from 'vitest'
import type { Tab } from './wire.ts'
import { frame, Viewer } from './viewer.ts'

function viewer(left: () => void = () => undefined): { viewer: Viewer; read: () => Promise<string | undefined> } {
  const made = new Viewer(new Set<Tab>(['locks', 'leases']), undefined, left)
  const reader = made.stream.getReader()
  return {
    viewer: made,
    async read() {
      const { done, value } = await reader.read()
      return done ? undefined : new TextDecoder().decode(value)
    },
  }
}

test('keeps the newest of each kind for a slow reader', async () => {
  const { viewer: slow, read } = viewer()
  for (let n = 0; n < 1000; n++) {
    slow.show('locks', n, frame('locks', `${n}`))
    slow.show('leases', n, frame('leases', `${n}`))
    slow.heartbeat()
  }
  expect(await read()).toBe('retry: 2000\n\nevent: locks\ndata: 999\n\nevent: leases\ndata: 999\n\n')
})

test('sends the next as it comes, and a keepalive otherwise', async () => {
  const { viewer: quick, read } = viewer()
  await read()
  const waiting = read()
  quick.show('locks', 1, frame('locks', '1'))
  expect(await waiting).toBe('event: locks\ndata: 1\n\n')
  quick.heartbeat()
  expect(await read()).toBe(': still here\n\n')
  expect(quick.stuckMs).toBe(0)
})

test('does not report trouble that is over', async () => {
  const { viewer: slow, read } = viewer()
  await read()
  slow.trouble(frame('trouble', '{}'))
  slow.show('locks', 1, frame('locks', '1'))
  expect(await read()).toBe('event: locks\ndata: 1\n\n')
  slow.show('locks', 2, frame('locks', '2'))
  slow.trouble(frame('trouble', '{}'))
  expect(slow.troubled).toBe(true)
  expect(await read()).toBe('event: locks\ndata: 2\n\nevent: trouble\ndata: {}\n\n')
})

test('ends a waiting stream on close, and reports a viewer that leaves', async () => {
  const { viewer: closed, read } = viewer()
  await read()
  const waiting = read()
  closed.close()
  closed.show('locks', 1, frame('locks', '1'))
  expect(await waiting).toBeUndefined()
  let left = 0
  const other = new Viewer(new Set<Tab>(['locks']), undefined, () => left++)
  await other.stream.cancel()
  expect(left).toBe(1)
  other.show('locks', 1, frame('locks', '1'))
})
