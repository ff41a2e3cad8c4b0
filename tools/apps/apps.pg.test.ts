import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { expect, test } from 'vitest'
import { newSeed } from '../../proofs/seed.ts'
import { installConsumer } from '../check/consumer.ts'
import { pack, tarball } from '../check/tarball.ts'
import { testDatabase } from '../server/testDatabase.ts'
import { buildNestApp } from './nestApp.ts'
import { race, violationsIn } from './race.ts'

const database = await testDatabase({ leakGuard: false })

// Next.js, and more of both: `npm run apps`.
test('two processes of the NestJS example, from the packed package, with kills: no violation', async () => {
  // `npm test` has built it.
  const { path } = await (process.env['LOCKSTEP_BUILT'] === '1' ? pack() : tarball())
  const project = await mkdtemp(join(tmpdir(), 'lockstep-nest-'))
  try {
    const { faults } = await installConsumer(project, path)
    expect(faults).toEqual([])
    const app = await buildNestApp(project)
    const seed = newSeed()
    const { violations, ...counted } = await race(app, database.url, { kills: 2, requestsPerKill: 30, seed })
    expect(violations, `seed ${seed}`).toEqual([])
    expect(counted.transfers).toBeGreaterThanOrEqual(90)
    expect(counted.replays).toBeGreaterThan(0)
  } finally {
    await rm(project, { recursive: true, force: true })
  }
  // What the race looks for is found where it is.
  const pool = new pg.Pool({ connectionString: database.url, max: 1 })
  try {
    await pool.query(`INSERT INTO transfers SELECT id, amount FROM transfers LIMIT 1`)
    await pool.query(`INSERT INTO steps SELECT instance, max(step) + 2 FROM steps GROUP BY instance LIMIT 1`)
    await pool.query(`UPDATE accounts SET balance = balance - 1 WHERE id = 'a'`)
    await pool.query(`UPDATE receipts SET seq = 1000000 WHERE n = (SELECT min(n) FROM receipts)`)
    const found = (await violationsIn(pool)).join('\n')
    for (const words of ['was made 2 times', 'left out a step', 'the balances are 3999', 'came in place']) {
      expect(found).toContain(words)
    }
  } finally {
    await pool.end()
  }
})
