import type { RolloutMode } from 'pg-lockstep'
import { on } from 'pg-lockstep/observe'
import { goal, type Goal, type ResultRow } from '../../tools/judge/report.ts'
import { waitFor } from '../checkers/leftovers.ts'
import { SOMEBODY_WAITS } from '../checkers/leftovers.sql.ts'
import { until } from '../until.ts'
import type { Client, Lab } from './lab.ts'
import { attackInLab } from './attack.ts'
import { CREATE, DUPLICATES, FIND, OPEN, WAITS_FOR_LEASE } from './rollout.sql.ts'
import { type Kind, KINDS, pullTriggers, type TriggerSize, under } from './rolloutTriggers.ts'

interface Size extends TriggerSize {
  /** Pairs of callers that meet on one symbol, and as many that come alone. */
  readonly pairs: number
}

/** What has not come by then is missing. */
const TOLD_MS = 2000

interface Counted {
  /** Waits: real ones with the lock on, would-be ones when observing. */
  readonly waits: number
  readonly duplicates: number
  /** Callers that got past a holder without waiting. */
  readonly passed: number
}

/**
 * Two paths create positions after looking whether they are there, under a lock or a lease. Off: no caller waits, and some positions exist twice.
 * Observe: no caller waits either, but those that would have waited are counted. On: they wait, and no position exists twice. What observing
 * counted must be what locking counts. Then each trigger is pulled in three processes at once: it must switch back, and report it, once.
 */
export const rollout = attackInLab<Size>({
  name: 'rollout',
  about:
    'observe blocks no caller and counts what the lock or the lease would have made wait; each trigger switches back once',
  full: { pairs: 100, calls: 100 },
  small: { pairs: 10, calls: 25 },
  async run(lab, size, reportProgress) {
    const results: ResultRow[] = []
    const goals: Goal[] = []
    for (const kind of KINDS) {
      const counted = new Map<RolloutMode, Counted>()
      for (const mode of ['off', 'observe', 'on'] as const) {
        reportProgress(`rollout: ${kind}s, ${mode}`)
        const row = await play(lab, kind, mode, size.pairs)
        counted.set(mode, row)
        const { waits, duplicates } = row
        results.push({ of: `${kind}s`, mode, 'pairs that met': size.pairs, waits, 'duplicate positions': duplicates })
      }
      goals.push(...judge(kind, size.pairs, counted))
    }
    goals.push(...(await pullTriggers(lab, size, reportProgress)))
    return { results, goals }
  },
})

function judge(kind: Kind, pairs: number, counted: ReadonlyMap<RolloutMode, Counted>): Goal[] {
  const { waits: observed = -1, passed = -1, duplicates: twice = -1 } = counted.get('observe') ?? {}
  const { waits: real = -1, duplicates = -1 } = counted.get('on') ?? {}
  const off = (Math.abs(observed - real) / real) * 100
  return [
    goal(`${kind}s on: duplicate positions`, duplicates, '=', 0),
    goal(`${kind}s observed: the planted race shows, positions are there twice`, twice, '>=', 1),
    goal(`${kind}s observed: callers that were not held up`, passed, '=', pairs),
    goal(`${kind}s observed: would-be waits against real ones, off by percent`, off, '<=', 10),
  ]
}

async function play(lab: Lab, kind: Kind, mode: RolloutMode, pairs: number): Promise<Counted> {
  await lab.admin.query(CREATE)
  const [first, second] = [
    lab.client('pg', lab.url('direct'), { rollout: mode, poolSize: 4 }),
    lab.client('postgres', lab.url('direct'), { rollout: mode, poolSize: 4 }),
  ]
  let waits = 0
  let passed = 0
  let wouldWait = 0
  const stops = [
    on('lock.contended', () => void waits++),
    on('lease.refused', (event) => void (event.waits && waits++)),
    on('lock.wouldWait', () => void wouldWait++),
    on('lease.wouldWait', () => void wouldWait++),
  ]
  try {
    for (let pair = 0; pair < pairs; pair++) {
      await meet(lab, kind, [first, second], `PAIR-${pair}`, mode === 'on', () => void passed++)
      // One that comes alone: neither waits nor would have.
      await create(kind, first, `ALONE-${pair}`, () => Promise.resolve())
    }
    // What would have waited is reported a moment after those in the way have gone.
    if (mode === 'observe') await until(() => wouldWait >= pairs, TOLD_MS)
    const { rows } = await lab.admin.query<{ n: number }>(DUPLICATES)
    return { waits: mode === 'observe' ? wouldWait : waits, duplicates: rows[0]?.n ?? -1, passed }
  } finally {
    for (const stop of stops) stop()
    await first.close()
    await second.close()
  }
}

/** The second comes when the first has looked and not yet created. */
async function meet(
  lab: Lab,
  kind: Kind,
  [first, second]: readonly [Client, Client],
  symbol: string,
  waits: boolean,
  passed: () => void,
): Promise<void> {
  let hasLooked = (): void => undefined
  let goOn = (): void => undefined
  const looked = new Promise<void>((resolve) => (hasLooked = resolve))
  const mayGoOn = new Promise<void>((resolve) => (goOn = resolve))
  const one = create(kind, first, symbol, async () => {
    hasLooked()
    await mayGoOn
  })
  await looked
  const other = create(kind, second, symbol, () => Promise.resolve())
  if (waits) await waitFor(lab.admin, kind === 'lock' ? SOMEBODY_WAITS : WAITS_FOR_LEASE)
  else {
    // It ends while the first is still at work: nothing held it up.
    await other
    passed()
  }
  goOn()
  await Promise.all([one, other])
}

function create(kind: Kind, { lockstep }: Client, symbol: string, between: () => Promise<void>): Promise<void> {
  return under(kind, lockstep, `Position:${symbol}`, async (transact) => {
    const { rows } = await transact((tx) => tx.query(FIND, [symbol]))
    await between()
    if (rows.length === 0) await transact((tx) => tx.query(OPEN, [symbol]))
  })
}
