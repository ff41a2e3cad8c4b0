import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { natsAvailable, startNats } from '../../tools/server/nats.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { guideShows } from '../../tools/server/testing/guideProgram.ts'
import { run } from './nats.ts'

describe('the example of NATS', async () => {
  const database = await testDatabase()

  test.skipIf(!natsAvailable())('books every trade once, in order', async () => {
    const server = await startNats()
    const pool = new pg.Pool({ connectionString: database.url })
    try {
      const { booked, agree, duplicates } = await run(pool, `127.0.0.1:${server.port}`)
      const inOrder = Array.from({ length: 20 }, (_, index) => index + 1)
      expect(booked).toEqual({ growth: inOrder, income: inOrder, cash: inOrder })
      expect(agree).toBe(true)
      expect(duplicates).toBe(12)
    } finally {
      await pool.end()
      await server.stop()
    }
  })

  test('is shown in the guide', () => {
    expect(guideShows('docs/guides/nats.md', 'examples/sinks/nats.ts')).toBe(true)
  })
})
