import { connect } from '@nats-io/transport-node'
import { jetstreamManager } from '@nats-io/jetstream'
import { afterAll, describe, expect, test, vi } from 'vitest'
import { natsAvailable, startNats } from '../../tools/server/nats.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { Desks, violations } from '../testing/desks.ts'
import { trades } from './index.ts'

describe.skipIf(!natsAvailable())('trades through NATS', async () => {
  if (!natsAvailable()) return
  const database = await testDatabase()
  const nats = await startNats()
  afterAll(() => nats.stop())
  const address = `127.0.0.1:${nats.port}`
  const desks = await Desks.start(database, [trades], { natsUrl: `nats://${address}` })

  test('are booked once each, in order, by the reader of one of two desks, without the local log', async () => {
    const order = { symbol: 'ACME', side: 'buy', quantity: 1, price: 100 }
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, turn) => desks.post(`/portfolios/n${turn % 2}/trades`, order)),
    )
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 201))
    await vi.waitFor(async () => expect(violations(await trades.check(desks.pool))).toEqual([]), { timeout: 15_000 })
    const [booked, logged] = await trades.check(desks.pool)
    expect([booked?.looked, logged?.looked]).toEqual([20, 0])
    const client = await connect({ servers: address })
    const manager = await jetstreamManager(client)
    expect((await manager.streams.info('TRADES')).state.messages).toBe(20)
    await client.close()
  })
})
