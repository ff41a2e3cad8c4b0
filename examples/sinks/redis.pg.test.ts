import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { redisAvailable, startRedis } from '../../tools/server/redis.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { guideShows } from '../../tools/server/testing/guideProgram.ts'
import { run } from './redis.ts'

describe('the example of Redis', async () => {
  const database = await testDatabase()

  test.skipIf(!redisAvailable())('books every trade once, in order', async () => {
    const server = await startRedis({ appendOnly: true })
    const pool = new pg.Pool({ connectionString: database.url })
    try {
      const { booked, agree, duplicates } = await run(pool, `127.0.0.1:${server.port}`)
      const inOrder = Array.from({ length: 20 }, (_, index) => index + 1)
      expect(booked).toEqual({ growth: inOrder, income: inOrder, cash: inOrder })
      expect(agree).toBe(true)
      expect(duplicates).toBe(10)
    } finally {
      await pool.end()
      await server.stop()
    }
  })

  test('is shown in the guide', () => {
    expect(guideShows('docs/guides/redis.md', 'examples/sinks/redis.ts')).toBe(true)
  })
})
