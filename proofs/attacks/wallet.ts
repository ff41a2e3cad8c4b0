import { key } from 'pg-lockstep'
import pg from 'pg'
import { goal, type Goal, type ResultRow } from '../../tools/judge/report.ts'
import { type DriverName, DRIVERS, type Lab, openLab, type Route, ROUTES } from './lab.ts'
import { attack } from './attack.ts'
import { COMMIT, CREATE, lockInside, READ, ROLLBACK, WRITE } from './wallet.sql.ts'

interface Size {
  readonly clients: number
  readonly increments: number
}

const WALLET = key`Wallet:${1}`

/**
 * Sixteen clients add one to a wallet, fifty times each, SERIALIZABLE. With the declared lock nobody may fail and the sum must be
 * exact. The same harness with the lock as the first statement inside BEGIN SERIALIZABLE must fail often: the lock is granted
 * after the snapshot, so what is read under it is stale.
 */
export const wallet = attack<Size>({
  name: 'wallet',
  about: 'SERIALIZABLE increments of one wallet under the declared lock, both drivers, direct and behind PgBouncer',
  full: { clients: 16, increments: 50 },
  small: { clients: 16, increments: 10 },
  async run(size, reportProgress) {
    const lab = await openLab()
    try {
      const results: ResultRow[] = []
      const goals: Goal[] = []
      const wanted = size.clients * size.increments
      for (const driver of DRIVERS) {
        for (const route of ROUTES) {
          reportProgress(`wallet: ${driver}, ${route}`)
          const { failures, sum } = await lockFirst(lab, driver, route, size)
          results.push({
            pattern: 'declared lock',
            driver,
            route,
            increments: wanted,
            sum,
            'failures (40001)': failures,
          })
          goals.push(goal(`${driver}, ${route}: serialization failures`, failures, '=', 0))
          goals.push(goal(`${driver}, ${route}: sum`, sum, '=', wanted))
        }
      }
      reportProgress('wallet: the lock inside BEGIN SERIALIZABLE')
      const { failures, sum } = await lockInsideBegin(lab, size)
      results.push({
        pattern: 'lock inside BEGIN',
        driver: 'pg',
        route: 'direct',
        increments: wanted,
        sum,
        'failures (40001)': failures,
      })
      goals.push(goal('the lock inside BEGIN SERIALIZABLE: serialization failures', failures, '>=', wanted / 4))
      return { results, goals }
    } finally {
      await lab.close()
    }
  },
})

async function lockFirst(
  lab: Lab,
  driver: DriverName,
  route: Route,
  size: Size,
): Promise<{ failures: number; sum: number }> {
  await lab.admin.query(CREATE)
  let failures = 0
  const clients = Array.from({ length: size.clients }, () => lab.client(driver, lab.url(route)))
  await Promise.all(
    clients.map(async ({ lockstep }) => {
      for (let done = 0; done < size.increments;) {
        try {
          // One attempt: a failure must come to light here, not be mended by a retry.
          await lockstep.transaction(
            { lock: WALLET, isolation: 'serializable', retry: { attempts: 1 } },
            async (tx) => {
              const { rows } = await tx.query<{ balance: number }>(READ)
              await tx.query(WRITE, [(rows[0]?.balance ?? 0) + 1])
            },
          )
          done++
        } catch (error) {
          if ((error as { code?: string }).code !== '40001') throw error
          failures++
        }
      }
    }),
  )
  await Promise.all(clients.map((client) => client.close()))
  return { failures, sum: await balance(lab) }
}

async function lockInsideBegin(lab: Lab, size: Size): Promise<{ failures: number; sum: number }> {
  await lab.admin.query(CREATE)
  let failures = 0
  const lockId = lab.client('pg', lab.url('direct')).lockstep.lockId(WALLET)
  await Promise.all(
    Array.from({ length: size.clients }, async () => {
      const client = new pg.Client({ connectionString: lab.url('direct') })
      await client.connect()
      for (let done = 0; done < size.increments;) {
        try {
          await client.query(lockInside(lockId))
          const { rows } = await client.query<{ balance: number }>(READ)
          await client.query(WRITE, [(rows[0]?.balance ?? 0) + 1])
          await client.query(COMMIT)
          done++
        } catch (error) {
          if ((error as { code?: string }).code !== '40001') throw error
          failures++
          await client.query(ROLLBACK)
        }
      }
      await client.end()
    }),
  )
  return { failures, sum: await balance(lab) }
}

async function balance(lab: Lab): Promise<number> {
  const { rows } = await lab.admin.query<{ balance: number }>(READ)
  return rows[0]?.balance ?? -1
}
