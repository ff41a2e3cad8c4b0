import { key, LockstepError } from 'pg-lockstep'
import { type ProxyConnection, startProxy } from 'pg-lockstep/testing'
import { goal } from '../../tools/judge/report.ts'
import { isCommitRequest } from '../faults/inCommit.ts'
import { DRIVERS, type Lab } from './lab.ts'
import type { Findings, ReportProgress } from './attack.ts'
import { CREATE, NAIVE_STATUS, PAY, XID } from './commit.sql.ts'

/** Enough transactions after the crash that the lost id belongs to another one. */
const LATER_TRANSACTIONS = 40
const TELLING: Readonly<Record<string, string>> = {
  LOCKSTEP_CONNECTION_LOST: 'rolled back',
  LOCKSTEP_COMMIT_OUTCOME_UNKNOWN: 'unknown',
}

/**
 * COMMIT is on its way when the server goes down. A crash: the server assigns ids again, so its answer would be about another
 * transaction, and the caller must receive that the outcome is unknown. A clean restart: the answer is valid, the transaction was rolled back.
 */
export async function commitAndCrash(lab: Lab, runs: number, reportProgress: ReportProgress): Promise<Findings> {
  const counts = { unknown: 0, misled: 0, restarts: 0, crashes: 0 }
  for (let run = 0; run < runs; run++) {
    const crash = run % 4 !== 3
    const { told, naive } = await goDownInCommit(lab, run, crash)
    reportProgress(
      `commit: ${crash ? 'crash' : 'clean restart'} ${run + 1} of ${runs}, reported as ${told}, the id alone would say ${naive}`,
    )
    if (crash) counts.crashes++
    if (crash && told === 'unknown') counts.unknown++
    if (crash && naive === 'committed') counts.misled++
    if (!crash && told === 'rolled back') counts.restarts++
  }
  return {
    results: [
      {
        fault: 'server crash',
        runs: counts.crashes,
        'struck in COMMIT': counts.crashes,
        'server committed': 0,
        'server did not': counts.crashes,
        'reported rightly': counts.unknown,
      },
      {
        fault: 'clean restart',
        runs: runs - counts.crashes,
        'struck in COMMIT': runs - counts.crashes,
        'server committed': 0,
        'server did not': runs - counts.crashes,
        'reported rightly': counts.restarts,
      },
    ],
    goals: [
      goal('crashes: reported as unknown', counts.unknown, '=', counts.crashes),
      goal('crashes: the id alone would have said committed', counts.misled, '>=', 1),
      goal('clean restarts: reported as rolled back', counts.restarts, '=', runs - counts.crashes),
    ],
  }
}

async function goDownInCommit(lab: Lab, run: number, crash: boolean): Promise<{ told: string; naive: string }> {
  await lab.admin.query(CREATE)
  const proxy = await startProxy({ targetPort: lab.server.port })
  const driver = DRIVERS[run % DRIVERS.length] ?? 'pg'
  const victim = lab.client(driver, proxy.url(lab.url('direct')))
  const other = lab.client('pg', lab.url('direct'))
  try {
    let xid = ''
    const struck = new Promise<ProxyConnection>((resolve) => {
      proxy.onClientData((chunk, connection) => {
        if (!isCommitRequest(chunk) || xid === '') return 'forward'
        // Neither the COMMIT nor the end of the server's side gets through: the client continues waiting for an answer.
        connection.silence()
        resolve(connection)
        return 'hold'
      })
    })
    const told = victim.lockstep
      .transaction({ lock: key`Payment:${run}`, retry: { attempts: 1 } }, async (tx) => {
        await tx.query(PAY, [`crash-${run}`, 1])
        const { rows } = await tx.query<{ xid: string }>(XID)
        xid = rows[0]?.xid ?? ''
      })
      .then(
        () => 'committed',
        (error: unknown) => (error instanceof LockstepError ? (TELLING[error.code] ?? error.code) : String(error)),
      )
    const connection = await struck
    proxy.onClientData(undefined)
    if (crash) {
      await lab.server.crash()
      await lab.server.start()
    } else await lab.server.restart('fast')
    for (let number = 0; number < LATER_TRANSACTIONS; number++) {
      await other.lockstep.transaction({}, async (tx) => void (await tx.query(PAY, [`later-${run}-${number}`, 1])))
    }
    connection.cut()
    const { rows } = await lab.admin.query<{ status: string | null }>(NAIVE_STATUS, [xid])
    return { told: await told, naive: rows[0]?.status ?? 'nothing' }
  } finally {
    await victim.close()
    await other.close()
    await proxy.close()
  }
}
