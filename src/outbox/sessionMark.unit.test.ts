import { expect, test } from 'vitest'
import type { Connection } from '../postgres/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { SessionMark } from './sessionMark.ts'

test('a session that is wanted again while the last one leaves it stays', async () => {
  let open = 0
  const connect = (): Promise<Connection> => {
    open++
    return Promise.resolve({
      protocolPid: 7,
      script: (text: string) => Promise.resolve(text.includes('pg_backend_pid') ? [{ rows: [{ pid: '7' }] }] : []),
      destroy: () => void open--,
    } as unknown as Connection)
  }
  const silence = { start: () => undefined, stop: () => undefined }
  const mark = SessionMark.of({ driver: { poolSize: 10, connect }, silence } as unknown as LockstepContext)
  await mark.want()
  const left = mark.leave()
  await mark.want()
  await left
  expect({ held: mark.held, open }).toEqual({ held: true, open: 1 })
  await mark.leave()
  expect({ held: mark.held, open }).toEqual({ held: false, open: 0 })
})
