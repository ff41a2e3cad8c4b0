import { type Isolation, key, LockAbortedError, LockstepError, LockTimeoutError } from 'pg-lockstep'
import { startProxy } from 'pg-lockstep/testing'
import { goal, type ResultRow } from '../../tools/judge/report.ts'
import { timeUntilNoLocks, timeUntilNoWaiters, waitFor } from '../checkers/leftovers.ts'
import { SOMEBODY_HOLDS, SOMEBODY_WAITS } from '../checkers/leftovers.sql.ts'
import { poolIsWhole } from '../checkers/wholePool.ts'
import { strikeNextCommit } from '../faults/inCommit.ts'
import { startProcess } from '../faults/killableProcess.ts'
import { endSessions } from '../faults/sessions.ts'
import type { Random } from '../seed.ts'
import { type Client, type DriverName, DRIVERS, type Lab, type Route, ROUTES } from './lab.ts'
import { attackInLab } from './attack.ts'

interface Size {
  readonly repetitions: number
  /** Processes take a second to start: the scaled-down size kills only in two of the eight settings. */
  readonly killEverywhere: boolean
}

interface Setting {
  readonly driver: DriverName
  readonly route: Route
  readonly isolation: Isolation
}

/** What a fault is played with. `victim` is hit; `holder` is in its way where one is needed. */
interface Stage extends Setting {
  readonly lab: Lab
  readonly victim: Client
  readonly holder: Client
  readonly random: Random
}

const POOL_SIZE = 3
const WALLET = key`Wallet:${'leftovers'}`

type Fault = (stage: Stage) => Promise<boolean>

/** Each gives true if it struck an operation in flight and the caller received the error that it should. */
const FAULTS: Readonly<Record<string, Fault>> = {
  timeout: ({ victim, holder, isolation }) =>
    whileHeld(holder, async () => {
      const error = await failure(victim.lockstep.transaction({ lock: WALLET, isolation, waitMs: 60 }, nothing))
      return error instanceof LockTimeoutError
    }),
  abort: ({ lab, victim, holder, isolation }) =>
    whileHeld(holder, async () => {
      const controller = new AbortController()
      const { signal } = controller
      const waiting = failure(victim.lockstep.transaction({ lock: WALLET, isolation, signal }, nothing))
      await waitFor(lab.admin, SOMEBODY_WAITS)
      controller.abort(new Error('no longer wanted'))
      return (await waiting) instanceof LockAbortedError && (await timeUntilNoWaiters(lab.admin)) !== undefined
    }),
  'thrown error': async ({ victim, isolation }) => {
    const thrown = new Error('insufficient funds')
    const error = await failure(victim.lockstep.transaction({ lock: WALLET, isolation }, () => Promise.reject(thrown)))
    return error === thrown
  },
  'holder terminated': async ({ lab, victim, isolation }) => {
    const error = await failure(
      victim.lockstep.transaction({ lock: WALLET, isolation, retry: { attempts: 1 } }, async (tx) => {
        await endSessions(lab.admin, { middleOf: 'holding a lock' })
        await tx.query('SELECT 1')
      }),
    )
    return error instanceof LockstepError && error.code === 'LOCKSTEP_CONNECTION_LOST'
  },
  'waiter terminated': ({ lab, victim, holder, isolation }) =>
    whileHeld(holder, async () => {
      const waiting = failure(victim.lockstep.transaction({ lock: WALLET, isolation, retry: { attempts: 1 } }, nothing))
      await waitFor(lab.admin, SOMEBODY_WAITS)
      await endSessions(lab.admin, { middleOf: 'waiting for a lock' })
      const error = await waiting
      return error instanceof LockstepError && error.code === 'LOCKSTEP_CONNECTION_LOST'
    }),
  'cut in COMMIT': async ({ lab, driver, route, isolation, random }) => {
    const proxy = await startProxy({ targetPort: Number(new URL(lab.url(route)).port) })
    const client = lab.client(driver, proxy.url(lab.url(route)), { poolSize: POOL_SIZE })
    try {
      await client.lockstep.transaction({}, nothing)
      const strike = strikeNextCommit(proxy, random.pick(['request lost', 'answer lost']))
      await client.lockstep.transaction({ lock: WALLET, isolation }, async (tx) => void (await tx.query('SELECT 1')))
      return strike.struck && (await poolIsWhole(client, POOL_SIZE))
    } finally {
      await client.close()
      await proxy.close()
    }
  },
  'killed while holding': async ({ lab, driver, route, isolation }) => {
    const killed = startProcess(new URL('processes/lockingProcess.ts', import.meta.url), [
      driver,
      lab.url(route),
      WALLET,
      isolation,
    ])
    await waitFor(lab.admin, SOMEBODY_HOLDS)
    await killed.kill()
    return true
  },
  'killed while waiting': ({ lab, driver, route, holder, isolation }) =>
    whileHeld(holder, async () => {
      const killed = startProcess(new URL('processes/lockingProcess.ts', import.meta.url), [
        driver,
        lab.url(route),
        WALLET,
        isolation,
      ])
      await waitFor(lab.admin, SOMEBODY_WAITS)
      await killed.kill()
      // The holder still holds: the dead one must leave the queue by itself.
      return (await timeUntilNoWaiters(lab.admin)) !== undefined
    }),
}

/** However a transaction fails, nothing is left of it: no lock, no waiter, no missing connection. */
export const leftovers = attackInLab<Size>({
  name: 'leftovers',
  about: 'after each kind of failure no lock is left within 2 s and the pool has all its connections back',
  full: { repetitions: 10, killEverywhere: true },
  small: { repetitions: 1, killEverywhere: false },
  async run(lab, size, reportProgress, random) {
    const results: ResultRow[] = []
    let [misfires, stranded, lame] = [0, 0, 0]
    for (const [name, fault] of Object.entries(FAULTS)) {
      reportProgress(`leftovers: ${name}`)
      const row = {
        fault: name,
        runs: 0,
        'struck as meant': 0,
        'locks left': 0,
        'pools not whole': 0,
        'gone after ms (worst)': 0,
      }
      for (const setting of settingsFor(name, size)) {
        for (let repetition = 0; repetition < size.repetitions; repetition++) {
          const { struck, goneAfterMs, whole } = await play(lab, setting, fault, random)
          row.runs++
          if (struck) row['struck as meant']++
          if (goneAfterMs === undefined) row['locks left']++
          else row['gone after ms (worst)'] = Math.max(row['gone after ms (worst)'], Math.round(goneAfterMs))
          if (!whole) row['pools not whole']++
        }
      }
      misfires += row.runs - row['struck as meant']
      stranded += row['locks left']
      lame += row['pools not whole']
      results.push(row)
    }
    return {
      results,
      goals: [
        goal('faults that did not strike, or were not reported', misfires, '=', 0),
        goal('locks left after 2 s', stranded, '=', 0),
        goal('pools without all their connections', lame, '=', 0),
      ],
    }
  },
})

function settingsFor(fault: string, size: Size): Setting[] {
  const all = DRIVERS.flatMap((driver) =>
    ROUTES.flatMap((route) => {
      const isolations: Isolation[] = ['read committed', 'serializable']
      return isolations.map((isolation) => ({ driver, route, isolation }))
    }),
  )
  if (!fault.startsWith('killed') || size.killEverywhere) return all
  return [
    { driver: 'pg', route: 'direct', isolation: 'read committed' },
    { driver: 'postgres', route: 'pooled', isolation: 'serializable' },
  ]
}

async function play(
  lab: Lab,
  setting: Setting,
  fault: Fault,
  random: Random,
): Promise<{ struck: boolean; goneAfterMs: number | undefined; whole: boolean }> {
  const victim = lab.client(setting.driver, lab.url(setting.route), { poolSize: POOL_SIZE })
  const holder = lab.client('pg', lab.url('direct'))
  try {
    // Both are warm: a strike must hit the transaction, not the connecting.
    await Promise.all([victim, holder].map((client) => client.lockstep.transaction({}, nothing)))
    const struck = await fault({ lab, victim, holder, random, ...setting })
    const goneAfterMs = await timeUntilNoLocks(lab.admin)
    return { struck, goneAfterMs, whole: await poolIsWhole(victim, POOL_SIZE) }
  } finally {
    await victim.close()
    await holder.close()
  }
}

const nothing = (): Promise<void> => Promise.resolve()

/** Runs the function while another client holds the wallet. */
async function whileHeld(holder: Client, fn: () => Promise<boolean>): Promise<boolean> {
  let isHeld = nothing
  const held = new Promise<void>((resolve) => (isHeld = () => Promise.resolve(resolve())))
  let letGo = nothing
  const released = new Promise<void>((resolve) => (letGo = () => Promise.resolve(resolve())))
  const holding = holder.lockstep.transaction({ lock: WALLET }, async () => {
    await isHeld()
    await released
  })
  await held
  try {
    return await fn()
  } finally {
    await letGo()
    await holding
  }
}

async function failure(attempt: Promise<unknown>): Promise<unknown> {
  try {
    await attempt
    return undefined
  } catch (error) {
    return error
  }
}
