import { key } from 'pg-lockstep'
import { goal } from '../../tools/judge/report.ts'
import { DRIVERS, type Lab, openLab } from './lab.ts'
import { attack, type ReportProgress } from './attack.ts'
import { ACQUIRE_001, CREATE_001 } from './leases.sql.ts'

interface Size {
  readonly names: number
  /** So many at most. */
  readonly controlNames: number
  /** The control ends when it has found so many names with two holders. */
  readonly controlDoubles: number
}

const ACQUIRERS = 48

/**
 * Forty-eight acquirers ask for one name at once, name after name: exactly one is granted each. The same harness with document
 * 001's query, which reads NOT EXISTS under a snapshot that is older than its lock, must grant some names twice.
 */
export const leases = attack<Size>({
  name: 'leases',
  about: 'forty-eight acquirers of one lease at once: one is granted; with the query of document 001 sometimes two',
  full: { names: 1500, controlNames: 1500, controlDoubles: Infinity },
  small: { names: 60, controlNames: 2000, controlDoubles: 1 },
  async run(size, reportProgress) {
    const lab = await openLab()
    try {
      const ours = await withLeases(lab, size.names, reportProgress)
      const theirs = await byDocument001(lab, size, reportProgress)
      return {
        results: [
          { way: 'lease', names: size.names, asked: size.names * ACQUIRERS, ...ours },
          { way: 'document 001', asked: theirs.names * ACQUIRERS, ...theirs },
        ],
        goals: [
          goal('leases: names with exactly one holder', ours['one holder'], '=', size.names),
          goal('leases: names with two', ours['two or more'], '=', 0),
          goal('control, document 001: names with two holders', theirs['two or more'], '>=', 1),
        ],
      }
    } finally {
      await lab.close()
    }
  },
})

interface Counts {
  'one holder': number
  'two or more': number
}

function count(counts: Counts, granted: number): void {
  if (granted === 1) counts['one holder']++
  if (granted > 1) counts['two or more']++
}

async function withLeases(lab: Lab, names: number, reportProgress: ReportProgress): Promise<Counts> {
  // Four processes' worth, two of each driver; one goes through the pooler.
  const clients = [...DRIVERS, ...DRIVERS].map((driver, index) =>
    lab.client(driver, lab.url(index === 3 ? 'pooled' : 'direct'), { poolSize: ACQUIRERS / 4 }),
  )
  const counts = { 'one holder': 0, 'two or more': 0 }
  for (let number = 0; number < names; number++) {
    if (number % 50 === 0) reportProgress(`leases: ${number} of ${names} names`)
    const asked = Array.from({ length: ACQUIRERS }, (_, acquirer) =>
      (clients[acquirer % clients.length] as (typeof clients)[number]).lockstep.leases.tryAcquire(
        key`Instance:${number}`,
      ),
    )
    const granted = (await Promise.all(asked)).filter((lease) => lease !== undefined)
    count(counts, granted.length)
    // Every second one stays, to be renewed in the background.
    if (number % 2 === 0) await Promise.all(granted.map((lease) => lease.release()))
  }
  await Promise.all(clients.map((client) => client.close()))
  return counts
}

async function byDocument001(
  lab: Lab,
  { controlNames, controlDoubles }: Size,
  reportProgress: ReportProgress,
): Promise<Counts & { names: number }> {
  await lab.admin.query(CREATE_001)
  const pool = lab.pool(ACQUIRERS)
  await Promise.all(Array.from({ length: ACQUIRERS }, () => pool.query('SELECT 1')))
  const counts = { 'one holder': 0, 'two or more': 0 }
  let number = 0
  for (; number < controlNames && counts['two or more'] < controlDoubles; number++) {
    if (number % 50 === 0) reportProgress(`leases: document 001, ${number} of ${controlNames} names`)
    const asked = await Promise.all(Array.from({ length: ACQUIRERS }, () => pool.query(ACQUIRE_001, [number])))
    count(counts, asked.filter(({ rowCount }) => rowCount === 1).length)
  }
  return { names: number, ...counts }
}
