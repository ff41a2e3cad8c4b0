import { once as event } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { goal, type ResultRow } from '../../tools/judge/report.ts'
import { bookErrors, ReportedTransfers } from '../checkers/ledger.ts'
import { waitFor } from '../checkers/leftovers.ts'
import { type KillableProcess, startProcess } from '../faults/killableProcess.ts'
import { DRIVERS, type Lab, openLab } from './lab.ts'
import { createLedger } from './ledger/ledger.sql.ts'
import { attack } from './attack.ts'
import { IN_FLIGHT, SESSIONS } from './combine.sql.ts'

interface Size {
  readonly kills: number
}

const ACCOUNTS = 10
const INITIAL = 1_000_000_000

/**
 * A process that serves sixty-four callers through combine is killed with a batch in flight, again and again. Every caller that saw
 * success finds its transfer in the books, none is there twice, and the books balance. A process is first stopped, then looked at,
 * and killed only if its transaction is open: a fault that strikes nothing does not count.
 */
export const combine = attack<Size>({
  name: 'combine',
  about: 'a process is killed in the middle of a batch: every success is in the books, nothing is there twice',
  full: { kills: 40 },
  small: { kills: 2 },
  async run(size, reportProgress) {
    const lab = await openLab()
    try {
      await lab.admin.query(createLedger(ACCOUNTS, INITIAL))
      const told = new ReportedTransfers()
      const stages = { begun: 0, written: 0, 'in COMMIT': 0 }
      for (let kill = 0; kill < size.kills; kill++) {
        reportProgress(`combine: kill ${kill + 1} of ${size.kills}`)
        stages[await killInFlight(lab, [driverOf(kill), String(kill)], told)]++
      }
      reportProgress('combine: with a planted bug')
      const planted = new ReportedTransfers()
      await killInFlight(lab, ['pg', 'planted', 'early'], planted)
      const { lost, twice } = await told.compare(lab.admin)
      const { off, wrong } = await bookErrors(lab.admin, ACCOUNTS, INITIAL)
      const results: ResultRow[] = [
        {
          kills: size.kills,
          'batch begun': stages.begun,
          'batch written': stages.written,
          'in COMMIT': stages['in COMMIT'],
          successes: told.count,
          lost,
          twice,
        },
      ]
      return {
        results,
        goals: [
          goal(
            'processes killed with a batch in flight',
            stages.begun + stages.written + stages['in COMMIT'],
            '=',
            size.kills,
          ),
          goal('successes that callers saw', told.count, '>=', size.kills * 64),
          goal('successes that are not in the books', lost, '=', 0),
          goal('transfers that are there twice', twice, '=', 0),
          goal('the total is off by', off, '=', 0),
          goal('balances that their transfers do not explain', wrong, '=', 0),
          goal('control, told before it is done: not in the books', (await planted.compare(lab.admin)).lost, '>=', 1),
        ],
      }
    } finally {
      await lab.close()
    }
  },
})

type Stage = 'begun' | 'written' | 'in COMMIT'

function driverOf(number: number): string {
  return DRIVERS[number % DRIVERS.length] as string
}

async function killInFlight(
  lab: Lab,
  [driver, ...run]: readonly [string, ...string[]],
  told: ReportedTransfers,
): Promise<Stage> {
  const victim = startProcess(new URL('processes/combineProcess.ts', import.meta.url), [
    driver,
    lab.url('direct'),
    '64',
    ...run,
  ])
  victim.child.on('message', (id: string) => told.done(id))
  // Warm: a batch is through.
  for (let successes = 0; successes < 64; successes++) await event(victim.child, 'message')
  const stage = await stopInFlight(lab, victim)
  await victim.kill()
  await waitFor(lab.admin, SESSIONS)
  return stage
}

/** Stops the process with a batch in flight: what the server shows then does not change by itself. */
async function stopInFlight(lab: Lab, victim: KillableProcess): Promise<Stage> {
  for (;;) {
    await sleep(Math.random() * 20)
    victim.signal('SIGSTOP')
    const { rows } = await lab.admin.query<{ stage: Stage }>(IN_FLIGHT)
    if (rows[0] !== undefined) return rows[0].stage
    victim.signal('SIGCONT')
  }
}
