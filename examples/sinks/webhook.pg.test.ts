import pg from 'pg'
import { expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { guideShows } from '../../tools/server/testing/guideProgram.ts'
import { run } from './webhook.ts'

const database = await testDatabase()

test('books every trade once and in order, though answers are lost', async () => {
  const pool = new pg.Pool({ connectionString: database.url })
  try {
    const { again, ...rest } = await run(pool)
    const inOrder = Array.from({ length: 10 }, (_, n) => n + 1)
    expect(rest).toEqual({
      booked: { growth: inOrder, income: inOrder, cash: inOrder },
      positions: { growth: 135, income: 145, cash: 155 },
      toStrangers: 401,
    })
    expect(again).toBeGreaterThan(0)
  } finally {
    await pool.end()
  }
})

test('is shown in the guide', () => {
  expect(guideShows('docs/guides/webhook.md', 'examples/sinks/webhook.ts')).toBe(true)
})
