import { setTimeout as sleep } from 'node:timers/promises'
import { WORKERS } from '../clients.ts'
import { type Fault, inFlight, type Scene, type Struck } from './fault.ts'
import {
  HOLD_SNAPSHOT,
  LET_GO,
  NO_SIBLINGS,
  RECONNECT,
  RELOAD,
  SLOW_COMMITS,
  USUAL_COMMITS,
  USUAL_SIBLINGS,
} from './server.sql.ts'
import { strikeSessions } from './sessions.ts'

const SESSIONS_AT_ONCE = 4
const HELD_MS = 1500
const SLOW_MS = 1000

async function strikeSome({ admin }: Scene, how: 'terminate' | 'cancel'): Promise<Struck> {
  const which = { application: WORKERS, middleOf: 'a transaction', most: SESSIONS_AT_ONCE } as const
  return { on: 'database', operations: await strikeSessions(admin, how, which) }
}

export const terminate: Fault = {
  name: 'terminate',
  about: 'pg_terminate_backend of sessions in the middle of something',
  strike: (scene) => strikeSome(scene, 'terminate'),
}

export const cancel: Fault = {
  name: 'cancel',
  about: 'pg_cancel_backend of sessions in the middle of something',
  strike: (scene) => strikeSome(scene, 'cancel'),
}

export const snapshot: Fault = {
  name: 'snapshot',
  about: 'an old snapshot is held open',
  async strike({ admin, workers }) {
    const struck = { on: 'database', operations: inFlight(workers) }
    const client = await admin.connect()
    // Another fault can end it: the next question shows that.
    client.on('error', () => undefined)
    try {
      await client.query(HOLD_SNAPSHOT)
      await sleep(HELD_MS)
      await client.query(LET_GO)
      client.release()
    } catch (error) {
      client.release(true)
      throw error
    }
    return struck
  },
}

const NOT_OURS = 'the server is not ours alone'

export const restart: Fault = {
  name: 'restart',
  rare: true,
  about: 'the server is restarted in immediate mode: a crash with recovery',
  impossible: ({ ownServer }) => (ownServer === undefined ? NOT_OURS : undefined),
  async strike({ ownServer, workers }) {
    const struck = { on: 'database', operations: inFlight(workers) }
    await ownServer?.restart()
    return struck
  },
}

export const slowCommit: Fault = {
  name: 'slow-commit',
  about: 'every COMMIT takes 40 ms longer, as on a slow disk (commit_delay)',
  impossible: ({ ownServer }) => (ownServer === undefined ? NOT_OURS : undefined),
  async strike({ admin, workers }) {
    const set = async (texts: readonly string[]): Promise<void> => {
      for (const text of [...texts, RELOAD]) await admin.query(text)
    }
    await set([SLOW_COMMITS, NO_SIBLINGS])
    const struck = { on: 'database', operations: inFlight(workers) }
    try {
      await sleep(SLOW_MS)
    } finally {
      await set([USUAL_COMMITS, USUAL_SIBLINGS])
    }
    return struck
  },
}

export const pooler: Fault = {
  name: 'pooler',
  about: 'PgBouncer in transaction mode in between; all its server connections are replaced',
  impossible: (scene) => (scene.pooler === undefined ? 'there is no PgBouncer in between' : undefined),
  async strike({ pooler: console, workers }) {
    const through = workers.filter(({ way }) => way === 'pooler')
    const struck = { on: through.map(({ by }) => by).join(', '), operations: inFlight(through) }
    await console?.query(RECONNECT)
    return struck
  },
}
