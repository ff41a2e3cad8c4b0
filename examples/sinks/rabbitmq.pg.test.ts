import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { rabbitAvailable, startRabbit } from '../../tools/server/rabbitmq.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { guideShows } from '../../tools/server/testing/guideProgram.ts'
import { run } from './rabbitmq.ts'

describe('the example of RabbitMQ', async () => {
  const database = await testDatabase()

  test.skipIf(!rabbitAvailable())(
    'books every trade once and in order, though some are delivered twice',
    async () => {
      const server = await startRabbit()
      const pool = new pg.Pool({ connectionString: database.url })
      try {
        const { again, ...rest } = await run(pool, `127.0.0.1:${server.port}`)
        const inOrder = Array.from({ length: 10 }, (_, n) => n + 1)
        expect(rest).toEqual({
          booked: { growth: inOrder, income: inOrder, cash: inOrder },
          positions: { growth: 135, income: 145, cash: 155 },
        })
        expect(again).toBeGreaterThan(0)
      } finally {
        await pool.end()
        await server.stop()
      }
    },
    60_000,
  )

  test('is shown in the guide', () => {
    expect(guideShows('docs/guides/rabbitmq.md', 'examples/sinks/rabbitmq.ts')).toBe(true)
  })
})
