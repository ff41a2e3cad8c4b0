import { once } from 'node:events'
import { key, LockstepError } from 'pg-lockstep'
import { goal, type ResultRow } from '../../tools/judge/report.ts'
import { type KillableProcess, startProcess } from '../faults/killableProcess.ts'
import type { ZombieOrder, ZombieReport } from './processes/zombieProcess.ts'
import { type Client, DRIVERS, type Lab } from './lab.ts'
import { attackInLab, type ReportProgress } from './attack.ts'
import { CREATE_STATE, READ_STATE, WRITE_STATE } from './zombie.sql.ts'

interface Size {
  readonly zombies: number
  readonly roundsEach: number
  /** What the machine may add to a ttl: two cores, and ten processes that wake up at once; or all the other tests. */
  readonly slackMs: number
}

const TTL_MS = 500

/**
 * A holder is stopped (SIGSTOP) until its lease has ended, another takes the lease and writes, the first continues (SIGCONT) and
 * writes as if nothing had happened: it must receive `LeaseLostError`, its signal must be aborted, and what stays must be the other's.
 * The same with the holder stopped inside its transaction: the other must get in within the ttl. Without the guard the late write
 * must come through.
 */
export const zombie = attackInLab<Size>({
  name: 'zombie',
  about: 'a holder that was stopped past its lease goes on and writes: it cannot commit',
  full: { zombies: 10, roundsEach: 20, slackMs: 400 },
  small: { zombies: 4, roundsEach: 2, slackMs: 3000 },
  async run(lab, size, reportProgress) {
    await lab.admin.query(CREATE_STATE)
    const guarded = await play(lab, size.zombies, size.roundsEach, reportProgress, (round) =>
      round % 2 === 0 ? 'outside' : 'inside',
    )
    const unguarded = await play(lab, 2, 1, reportProgress, () => 'unguarded')
    return {
      results: [
        { holder: 'with the guard', ...guarded },
        { holder: 'without', ...unguarded },
      ] satisfies ResultRow[],
      goals: [
        goal('runs', guarded.runs, '=', size.zombies * size.roundsEach),
        goal('late writes that came through', guarded['stale commits'], '=', 0),
        goal('holders that did not receive LeaseLostError', guarded.runs - guarded['received LeaseLostError'], '=', 0),
        goal('holders whose signal was not aborted', guarded.runs - guarded['signal aborted'], '=', 0),
        goal('ms until the other was in, worst', guarded['other in after ms (worst)'], '<=', TTL_MS + size.slackMs),
        goal('control, without the guard: late writes that came through', unguarded['stale commits'], '>=', 1),
      ],
    }
  },
})

interface Counts {
  runs: number
  'stale commits': number
  'received LeaseLostError': number
  'signal aborted': number
  'other in after ms (worst)': number
}

async function play(
  lab: Lab,
  zombies: number,
  rounds: number,
  reportProgress: ReportProgress,
  modeOf: (round: number) => ZombieOrder['mode'],
): Promise<Counts> {
  const counts: Counts = {
    runs: 0,
    'stale commits': 0,
    'received LeaseLostError': 0,
    'signal aborted': 0,
    'other in after ms (worst)': 0,
  }
  const other = lab.client('pg', lab.url('direct'), { poolSize: 10 })
  const processes = Array.from({ length: zombies }, (_, number) =>
    startProcess(new URL('processes/zombieProcess.ts', import.meta.url), [
      DRIVERS[number % 2] as string,
      lab.url('direct'),
      String(TTL_MS),
    ]),
  )
  try {
    await Promise.all(processes.map(({ child }) => once(child, 'message')))
    for (let round = 0; round < rounds; round++) {
      reportProgress(`zombie: round ${round + 1} of ${rounds}`)
      const mode = modeOf(round)
      await Promise.all(
        processes.map((process, number) =>
          strike(lab, process, other, { name: key`Zombie:${mode}:${round}:${number}`, mode }, counts),
        ),
      )
    }
    return counts
  } finally {
    await Promise.all(processes.map((each) => each.kill()))
    await other.close()
  }
}

async function strike(
  lab: Lab,
  victim: KillableProcess,
  other: Client,
  order: ZombieOrder,
  counts: Counts,
): Promise<void> {
  await victim.ask<string>(order)
  victim.stop()
  const stoppedAt = performance.now()
  const lease = await other.lockstep.leases.acquire(order.name, { ttlMs: 30_000, waitMs: 20 * TTL_MS, holder: 'other' })
  const inAfterMs = performance.now() - stoppedAt
  await lease.transaction({}, async (tx) => void (await tx.query(WRITE_STATE, [order.name, 'other'])))
  victim.continue()
  const report = await victim.ask<ZombieReport>('go on')
  const { rows } = await lab.admin.query<{ owner: string }>(READ_STATE, [order.name])
  await lease.release()
  counts.runs++
  if (rows[0]?.owner !== 'other') counts['stale commits']++
  if (report.outcome === ('LOCKSTEP_LEASE_LOST' satisfies LockstepError['code'])) counts['received LeaseLostError']++
  if (report.aborted) counts['signal aborted']++
  counts['other in after ms (worst)'] = Math.max(counts['other in after ms (worst)'], Math.round(inAfterMs))
}
