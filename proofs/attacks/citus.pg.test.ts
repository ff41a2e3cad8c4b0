import pg from 'pg'
import { expect, test } from 'vitest'
import { verdictOf } from '../../tools/judge/report.ts'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { random } from '../seed.ts'
import type { Findings } from './attack.ts'
import { citus } from './citus.ts'
import { STAND_IN, standInWorker } from './citusStandIn.sql.ts'

/**
 * There is no Citus in these tests. What is shown here: that the attack runs and its controls work, on a stand-in for the catalog whose tables stay
 * where they are; and that it shows nothing where there is no cluster. What ran on a real one is in docs/platforms/citus.md.
 */
function attack(against?: string): Promise<Findings> {
  return citus.run('small', () => undefined, random(1, 'citus'), undefined, against)
}

async function statements(server: PostgresServer, texts: readonly string[]): Promise<void> {
  const client = new pg.Client({ connectionString: server.url() })
  await client.connect()
  try {
    for (const text of texts) await client.query(text)
  } finally {
    await client.end()
  }
}

test('attack citus says that nothing was shown where no cluster is named', async () => {
  const { goals } = await attack()
  expect(verdictOf(goals)).toBe('inconclusive')
  expect(goals[0]?.name).toContain('--against URL')
})

test('attack citus: all of it on a stand-in for the catalog', { timeout: 480_000 }, async () => {
  const [coordinator, worker] = [await startPostgres(), await startPostgres()]
  try {
    expect(verdictOf((await attack(coordinator.url())).goals)).toBe('inconclusive')
    const at = new URL(worker.url())
    await statements(coordinator, [...STAND_IN, standInWorker(at.hostname, Number(at.port))])
    await statements(worker, [...STAND_IN, 'UPDATE pg_catalog.pg_dist_local_group SET groupid = 1'])
    expect(verdictOf((await attack(worker.url())).goals)).toBe('inconclusive')
    const { goals } = await attack(coordinator.url())
    expect(goals.filter(({ holds }) => !holds)).toEqual([])
    expect(goals.find(({ name }) => name === 'workers that the doctor did not refuse')).toMatchObject({ value: 0 })
  } finally {
    await Promise.all([coordinator, worker].map((server) => server.stop('immediate')))
  }
})
