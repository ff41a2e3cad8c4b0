import pg from 'pg'
import { expect, test } from 'vitest'
import { startPostgres } from '../../tools/server/postgres.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { guideShows } from '../../tools/server/testing/guideProgram.ts'
import { run } from './postgres-sink.ts'

const database = await testDatabase()

test('counts every trade once and in order, though one portfolio is closed and everything is delivered twice', async () => {
  const other = await startPostgres()
  const pool = new pg.Pool({ connectionString: database.url })
  try {
    const { booked, positions, agree, duplicates, refusals } = await run(pool, other.url())
    const inOrder = Array.from({ length: 20 }, (_, n) => n + 1)
    expect(booked).toEqual({ growth: inOrder, income: inOrder, cash: inOrder })
    expect(positions).toEqual({ growth: 570, income: 590, cash: 610 })
    expect(agree).toBe(true)
    expect(duplicates).toBe(60)
    expect(refusals).toBeGreaterThan(0)
  } finally {
    await pool.end()
    await other.stop('immediate')
  }
})

test('is shown in the guide', () => {
  expect(guideShows('docs/guides/postgres-sink.md', 'examples/sinks/postgres-sink.ts')).toBe(true)
})
