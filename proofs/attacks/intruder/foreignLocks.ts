import pg from 'pg'
import { key, LockTimeoutError } from 'pg-lockstep'
import { type Goal, goal } from '../../../tools/judge/report.ts'
import type { Arena, Edge } from '../edges/edge.ts'
import {
  BLOCKER,
  GROUP_OF,
  CREATE_BLOCKER,
  DROP_BLOCKER,
  ENQUEUE_SOON,
  GRANT_CONNECT,
  REVOKE_CONNECT,
  takeLock,
} from './foreignLocks.sql.ts'

const STREAM = { topic: 'intruder', key: 'blocked' }

/**
 * Every role that can connect can take any advisory lock, and with it a key or a group of the outbox. That cannot be refused; the doctor
 * names the session, and without CONNECT there is none. The control is the harm that it does.
 */
export const foreignLocks: Edge = {
  name: 'foreign-locks',
  async run(arena) {
    const { admin } = arena.lab
    await admin.query(CREATE_BLOCKER)
    try {
      return await attackLocks(arena)
    } finally {
      await admin.query(GRANT_CONNECT)
      await admin.query(DROP_BLOCKER)
    }
  },
}

async function attackLocks({ lab, driver }: Arena): Promise<Goal[]> {
  const client = lab.client(driver, lab.url('direct'), { poolSize: 4 })
  const { lockstep } = client
  const wanted = key`Intruder:${1}`
  await lockstep.transaction({}, (tx) => tx.enqueue({ ...STREAM, payload: 1 }))
  const group = await lab.admin.query<{ id: string }>(GROUP_OF, [STREAM.topic, STREAM.key])
  const blocker = await connect(lab.url('direct'))
  await blocker.query(takeLock(lockstep.lockId(wanted)))
  await blocker.query(takeLock(BigInt(group.rows[0]?.id ?? 0)))

  // The key's name is known once the key was asked for: the doctor is asked while a session of ours waits for it.
  const waiting = lockstep
    .transaction({ lock: wanted, waitMs: 1500 }, async () => 'ran')
    .catch((error: unknown) => error)
  const stop = new AbortController()
  const found: string[] = []
  while (!stop.signal.aborted) {
    const findings = await lockstep.doctor({ trial: false })
    found.push(findings.find(({ name, level }) => name === 'foreign locks' && level === 'warn')?.found ?? '')
    if (found.at(-1)?.includes('Intruder:1') === true || found.length >= 50) stop.abort()
  }
  const outcome = await waiting
  const enqueued = await lab.admin.query(ENQUEUE_SOON).then(
    () => 1,
    () => 0,
  )
  await blocker.end()
  const free = await lockstep.doctor({ trial: false })

  await lab.admin.query(REVOKE_CONNECT)
  const again = await connect(lab.url('direct')).catch(() => undefined)
  await again?.end()
  await client.close()
  const last = found.at(-1) ?? ''
  return [
    goal('the doctor names the session, its role, the key and the group', saysAll(last) ? 1 : 0, '=', 1),
    goal('sessions that the doctor names when it has gone', free.filter(isForeign).length, '=', 0),
    goal('without CONNECT: sessions of the role', again === undefined ? 0 : 1, '=', 0),
    goal('control, with CONNECT: a key that was not available', outcome instanceof LockTimeoutError ? 1 : 0, '>=', 1),
    goal('control, with CONNECT: an event that was not to be enqueued', 1 - enqueued, '>=', 1),
  ]
}

function isForeign({ name, level }: { name: string; level: string }): boolean {
  return name === 'foreign locks' && level !== 'ok'
}

function saysAll(found: string): boolean {
  return [`"${BLOCKER}"`, 'Intruder:1', 'group'].every((each) => found.includes(each))
}

async function connect(url: string): Promise<pg.Client> {
  const own = new URL(url)
  own.username = BLOCKER
  const client = new pg.Client({ connectionString: own.href })
  await client.connect()
  return client
}
