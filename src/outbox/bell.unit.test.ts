import { expect, test } from 'vitest'
import { signal } from '../../tools/server/testing/workbench.ts'
import type { Listener } from '../leases/index.ts'
import type { Connection } from '../postgres/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { Bell } from './bell.ts'

test('is rung for after it was asked for again, also where the server hears last that no ring was needed', async () => {
  const [declining, slow] = [signal(), signal()]
  const listeners = new Set<string>()
  const connection = {
    async script(text: string) {
      const [, listener = '', forMs] = /outbox_listen\('(\S+)', (\w+)\)/.exec(text) ?? []
      if (forMs !== 'NULL') listeners.add(listener)
      else {
        declining.give()
        await slow.given
        listeners.delete(listener)
      }
      return []
    },
    release() {},
  } as unknown as Connection
  const context = { driver: { connect: () => Promise.resolve(connection) }, quotedSchema: 'lockstep' }
  const bell = new Bell(context as unknown as LockstepContext, {} as Listener, 'me', () => undefined)
  await bell.ask()
  const declined = bell.decline()
  await declining.given
  // On another connection.
  await bell.ask()
  slow.give()
  await declined
  expect(listeners.size).toBe(1)
  await bell.decline()
  expect(listeners.size).toBe(0)
})
