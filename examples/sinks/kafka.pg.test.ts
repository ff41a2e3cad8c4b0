import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { kafkaAvailable, startKafka } from '../../tools/server/kafka.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { guideShows } from '../../tools/server/testing/guideProgram.ts'
import { run } from './kafka.ts'

describe.skipIf(!kafkaAvailable())('through Kafka', async () => {
  const database = await testDatabase()

  test('counts every trade once and in order, though everything is delivered twice', async () => {
    const server = await startKafka()
    const pool = new pg.Pool({ connectionString: database.url })
    try {
      const { handled, positions, agree, duplicates } = await run(pool, server.brokers[0] as string)
      const inOrder = Array.from({ length: 20 }, (_, n) => n + 1)
      expect(handled).toEqual({ growth: inOrder, income: inOrder, cash: inOrder })
      expect(positions).toEqual({ growth: 570, income: 590, cash: 610 })
      expect(agree).toBe(true)
      expect(duplicates).toBe(60)
    } finally {
      await pool.end()
      await server.stop()
    }
  })
})

test('is shown in the guide', () => {
  expect(guideShows('docs/guides/kafka.md', 'examples/sinks/kafka.ts')).toBe(true)
})
