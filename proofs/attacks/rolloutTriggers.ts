import { setTimeout as sleep } from 'node:timers/promises'
import {
  type Key,
  Lockstep,
  type RolloutMode,
  type StoredRolloutRule,
  type SwitchBackTriggers,
  type Transaction,
} from 'pg-lockstep'
import { on } from 'pg-lockstep/observe'
import { lockstepMetrics } from 'pg-lockstep/prometheus'
import * as prometheus from 'prom-client'
import { goal, type Goal } from '../../tools/judge/report.ts'
import { until } from '../until.ts'
import { DRIVERS, type Lab } from './lab.ts'
import { CREATE_UNIQUE, FIND, OPEN } from './rollout.sql.ts'

/** Locks of transactions, or leases. */
export const KINDS = ['lock', 'lease'] as const
export type Kind = (typeof KINDS)[number]

const TRIGGERS = ['waitMs', 'failurePercent', 'duplicates', 'slowerPercent'] as const
type Trigger = (typeof TRIGGERS)[number]

/** As the application's plan has them: a wait above 10 s, failures above 5 %, any duplicate, a fifth slower. */
const BOUNDS = { waitMs: 10_000, failurePercent: 5, duplicates: 1, slowerPercent: 20 } satisfies SwitchBackTriggers
/** The same with a wait that an attack can bring about. */
const BOUND_WAIT_MS = 300

/** What has not come by then is missing. */
const PULLED_MS = 60_000
/** In which a second report would have come. */
const AGAIN_MS = 300

export interface TriggerSize {
  /** Calls of each process that are compared, and that fail. */
  readonly calls: number
}

/** What was reported of one trigger. */
interface Reported {
  readonly events: readonly { readonly prefix: string; readonly trigger: string; readonly reason: string }[]
  readonly warnings: readonly string[]
}

/** Pulls each trigger of locks and of leases in three processes at the same time. It must switch once, and be reported once in each place. */
export async function pullTriggers(
  lab: Lab,
  { calls }: TriggerSize,
  reportProgress: (line: string) => void,
): Promise<Goal[]> {
  await lab.admin.query(CREATE_UNIQUE)
  const goals: Goal[] = []
  for (const kind of KINDS) {
    for (const trigger of TRIGGERS) {
      reportProgress(`rollout: ${trigger} of ${kind}s`)
      goals.push(await pullOne(lab, kind, trigger, calls))
    }
    reportProgress(`rollout: healthy ${kind}s`)
    goals.push(await pullNone(lab, kind, calls))
  }
  return goals
}

async function pullOne(lab: Lab, kind: Kind, trigger: Trigger, calls: number): Promise<Goal> {
  const prefix = `${kind}-${trigger}:`
  const register = new prometheus.Registry()
  const stopMetrics = lockstepMetrics(prometheus, { register })
  const mode: RolloutMode = trigger === 'slowerPercent' ? { percent: 50 } : 'on'
  const bound = trigger === 'waitMs' ? BOUND_WAIT_MS : BOUNDS[trigger]
  try {
    const { events, warnings } = await listening(prefix, (heard) =>
      withProcesses(lab, prefix, mode, { [trigger]: bound }, async (processes) => {
        const harmed = HARMS[trigger](lab, kind, processes, prefix, calls)
        await until(() => heard().events.length > 0, PULLED_MS)
        await harmed
        // A second report would follow at once: from another process, or from calls that continued.
        await sleep(AGAIN_MS)
      }),
    )
    const rule = await ruleOf(lab, prefix)
    const counted = await register.getSingleMetricAsString('lockstep_rollout_switched_back_total')
    const inMetrics = counted.split('\n').filter((line) => line.includes(`{prefix="${prefix}",trigger="${trigger}"} 1`))
    const stored = rule !== undefined && rule.mode === 'observe' && rule.reason === events[0]?.reason
    const named = events.every((event) => event.trigger === trigger)
    const once = [events.length, warnings.length, inMetrics.length].every((count) => count === 1) && stored && named
    const name = `${kind}s: ${trigger} switches back once; event, warning, metric and rule report it`
    // Switched once, and not reported everywhere: 0.
    return goal(name, once || events.length !== 1 ? events.length : 0, '=', 1)
  } finally {
    stopMetrics()
  }
}

/** Healthy calls pull nothing: half of the keys locked, all bounds as the plan has them. */
async function pullNone(lab: Lab, kind: Kind, calls: number): Promise<Goal> {
  const prefix = `${kind}-healthy:`
  const { events } = await listening(prefix, () =>
    withProcesses(lab, prefix, { percent: 50 }, BOUNDS, async (processes) => {
      await everywhere(processes, async (lockstep, index) => {
        // A key of its own for each call: no call waits.
        for (let call = 0; call < 4 * calls; call++)
          await under(kind, lockstep, `${prefix}${index}-${call}`, () => sleep(2))
      })
    }),
  )
  return goal(`${kind}s: healthy calls that switched something back`, events.length, '=', 0)
}

type Harm = (lab: Lab, kind: Kind, processes: readonly Lockstep[], prefix: string, calls: number) => Promise<unknown>

const HARMS: Readonly<Record<Trigger, Harm>> = {
  /** One holder, and callers in all processes that wait for it for too long. */
  async waitMs(lab, kind, processes, prefix) {
    const holder = lab.client('pg', lab.url('direct')).lockstep
    const name = `${prefix}1` as Key
    let waiting: Promise<unknown> | undefined
    await under(kind, holder, name, async () => {
      waiting = holder.detached(() => everywhere(processes, (each) => under(kind, each, name, () => Promise.resolve())))
      await until(async () => (await ruleOf(lab, prefix))?.mode === 'observe', PULLED_MS)
    })
    await waiting
  },

  /** One holder, and callers in all processes that give up after a wait; most calls succeed. */
  async failurePercent(lab, kind, processes, prefix, calls) {
    const holder = lab.client('pg', lab.url('direct')).lockstep
    const held = `${prefix}held` as Key
    const callAndFail = async (each: Lockstep, index: number): Promise<void> => {
      for (let call = 0; call < calls; call++) {
        const name = call % 5 === 0 ? held : (`${prefix}${index}-${call}` as Key)
        await under(kind, each, name, () => Promise.resolve(), 20).catch(() => undefined)
      }
    }
    await under(kind, holder, held, () => holder.detached(() => everywhere(processes, callAndFail)))
  },

  /** A path that does not know of the lock creates the same between the look and the creation. A unique index refuses the second. */
  async duplicates(lab, kind, processes, prefix) {
    await everywhere(processes, async (each, index) => {
      const symbol = `${prefix}${index}`
      await createBesideLegacy(lab, kind, each, symbol as Key)
    })
  },

  /** Calls of all processes meet on one key that is locked, and on one that is observed. */
  async slowerPercent(lab, kind, processes, prefix, calls) {
    const [first] = processes
    if (first === undefined) return
    const [locked, observed] = await oneOfEach(first, prefix)
    const callOften = (name: Key, enough: () => boolean): Promise<void> =>
      everywhere(processes, async (each) => {
        const callers = Array.from({ length: 4 }, async () => {
          for (let call = 0; call < calls || !enough(); call++) await under(kind, each, name, () => sleep(3))
        })
        await Promise.all(callers)
      })
    await callOften(observed, () => true)
    // How many calls are no chance depends on how much their durations vary, which a busy machine decides.
    let ended = false
    const pulled = until(async () => (await ruleOf(lab, prefix))?.mode === 'observe', PULLED_MS)
    void pulled.then(() => (ended = true))
    await callOften(locked, () => ended)
  },
}

/** A key that half of the keys being locked locks, and one that it observes. */
async function oneOfEach(lockstep: Lockstep, prefix: string): Promise<[locked: Key, observed: Key]> {
  const found = new Map<string, Key>()
  for (let number = 0; found.size < 2; number++) {
    const name = `${prefix}${number}` as Key
    found.set(await lockstep.lease(name, {}, ({ mode }) => Promise.resolve(mode)), name)
  }
  return [found.get('on') as Key, found.get('observe') as Key]
}

async function createBesideLegacy(lab: Lab, kind: Kind, lockstep: Lockstep, name: Key): Promise<void> {
  let looked = false
  const legacy = async (): Promise<void> => {
    if (looked) return
    looked = true
    await lab.admin.query(OPEN, [name])
  }
  if (kind === 'lock') {
    await lockstep.once(name, {
      find: async (tx) => (await tx.query(FIND, [name])).rows[0],
      create: async (tx) => {
        await legacy()
        await tx.query(OPEN, [name])
        return {}
      },
    })
    return
  }
  await lockstep.onceExternal<Key, Key, void>(name, {
    find: async (tx) => ((await tx.query(FIND, [name])).rows.length > 0 ? { pending: name } : undefined),
    begin: async (tx) => {
      await legacy()
      await tx.query(OPEN, [name])
      return name
    },
    act: () => Promise.resolve(),
    finish: () => Promise.resolve(name),
  })
}

/** Runs statements: in the transaction that has the lock, or in one of the lease. */
type Transact = <T>(work: (tx: Pick<Transaction, 'query'>) => Promise<T>) => Promise<T>

/** Works under the key, as a lock or as a lease. */
export function under<T>(
  kind: Kind,
  lockstep: Lockstep,
  name: string,
  work: (transact: Transact) => Promise<T>,
  waitMs = 60_000,
): Promise<T> {
  if (kind === 'lock') return lockstep.transaction({ lock: name as Key, waitMs }, (tx) => work((use) => use(tx)))
  return lockstep.lease(name as Key, { waitMs, ttlMs: 10_000 }, (lease) => work((use) => lease.transaction({}, use)))
}

async function everywhere(
  processes: readonly Lockstep[],
  work: (lockstep: Lockstep, index: number) => Promise<unknown>,
): Promise<void> {
  await Promise.all(processes.map(work))
}

async function ruleOf(lab: Lab, prefix: string): Promise<StoredRolloutRule | undefined> {
  return (await new Lockstep(lab.admin).rollout.list()).find((rule) => rule.prefix === prefix)
}

/** What is reported of a prefix while the work runs. */
async function listening(prefix: string, work: (heard: () => Reported) => Promise<unknown>): Promise<Reported> {
  const [events, warnings]: [Reported['events'][number][], string[]] = [[], []]
  const stop = on('rollout.switchedBack', (event) => void (event.prefix === prefix && events.push(event)))
  const onWarning = (warning: Error): void => {
    if (warning.name === 'LockstepRollout' && warning.message.includes(prefix)) warnings.push(warning.message)
  }
  process.on('warning', onWarning)
  const heard = (): Reported => ({ events, warnings })
  try {
    await work(heard)
    return heard()
  } finally {
    stop()
    process.off('warning', onWarning)
  }
}

/** Three Locksteps with pools of their own that follow one rule. */
async function withProcesses(
  lab: Lab,
  prefix: string,
  mode: RolloutMode,
  switchBack: SwitchBackTriggers,
  work: (processes: readonly Lockstep[]) => Promise<void>,
): Promise<void> {
  const options = { rollout: 'database', switchBack, poolSize: 6 } as const
  const clients = [...DRIVERS, 'pg' as const].map((driver) => lab.client(driver, lab.url('direct'), options))
  const processes = clients.map(({ lockstep }) => lockstep)
  try {
    await new Lockstep(lab.admin).rollout.set(prefix, mode)
    // All know the rule before the first of them changes it.
    await everywhere(processes, (each) => under('lock', each, `${prefix}first`, () => Promise.resolve()))
    await work(processes)
  } finally {
    await Promise.all(clients.map((client) => client.close()))
  }
}
