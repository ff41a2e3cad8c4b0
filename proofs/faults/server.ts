import { setTimeout as sleep } from 'node:timers/promises'
import { APPLICATION } from '../clients.ts'
import { type Fault, inFlight, type Scene, type Struck } from './fault.ts'
import {
  CANCEL,
  HOLD_SNAPSHOT,
  LET_GO,
  NO_SIBLINGS,
  RECONNECT,
  RELOAD,
  SLOW_COMMITS,
  TERMINATE,
  USUAL_COMMITS,
  USUAL_SIBLINGS,
} from './server.sql.ts'

const SESSIONS_AT_ONCE = 4
const HELD_MS = 1500
const SLOW_MS = 1000

async function strikeSessions({ admin }: Scene, text: string): Promise<Struck> {
  const { rows } = await admin.query<{ struck: number }>(text, [APPLICATION, SESSIONS_AT_ONCE])
  return { on: 'database', operations: rows[0]?.struck ?? 0 }
}

export const terminate: Fault = {
  name: 'terminate',
  about: 'pg_terminate_backend of sessions in the middle of something',
  impossible: () => undefined,
  strike: (scene) => strikeSessions(scene, TERMINATE),
}

export const cancel: Fault = {
  name: 'cancel',
  about: 'pg_cancel_backend of sessions in the middle of something',
  impossible: () => undefined,
  strike: (scene) => strikeSessions(scene, CANCEL),
}

export const snapshot: Fault = {
  name: 'snapshot',
  about: 'an old snapshot is held open',
  impossible: () => undefined,
  async strike({ admin, workers }) {
    const struck = { on: 'database', operations: inFlight(workers) }
    const client = await admin.connect()
    // Another fault may end it: the next question then tells.
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
