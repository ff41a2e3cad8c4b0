import { randomUUID } from 'node:crypto'
import pg from 'pg'
import { loadPeer } from '../harness/peers.ts'
import { CONNECTIONS, eventOf, inChunks } from '../outboxEvents.ts'
import { inTransaction } from './byHand.ts'
import type { ContenderKind, Payload } from './contender.ts'
import { FILL_MESSAGES } from './pgTransactionalOutbox.sql.ts'

interface Message {
  readonly id: string
  readonly aggregateType: string
  readonly aggregateId: string
  readonly messageType: string
  readonly segment: string
  readonly payload: unknown
  readonly metadata: unknown
  readonly createdAt: string
}

/** The part of pg-transactional-outbox that is used. */
interface PgTransactionalOutbox {
  readonly DatabaseSetup: Readonly<
    Record<'dropAndCreateTable' | 'createPollingFunction' | 'setupPollingIndexes', (config: object) => string>
  >
  getDisabledLogger(): object
  initializeMessageStorage(config: object, logger: object): (message: Message, client: pg.PoolClient) => Promise<void>
  initializePollingMessageListener(
    config: object,
    handler: { handle(message: Message): Promise<void> },
    logger: object,
    strategies: object,
  ): [shutdown: () => Promise<void>]
}

const AT_ONCE = 50

export const pgTransactionalOutbox: ContenderKind = {
  order: 'per segment, by the clock of the INSERT',
  settings: `Polling, the key as segment, ${AT_ONCE} messages at once on as many connections from the start (batchSizeStrategy), polled every 10 ms.
Without the protections that cost a statement more for each message, as its README has it for an outbox.`,
  most: 20_000,
  async open(url) {
    const outbox = await loadPeer<PgTransactionalOutbox>('pg-transactional-outbox')
    const logger = outbox.getDisabledLogger()
    const config = {
      outboxOrInbox: 'outbox',
      dbListenerConfig: { connectionString: url, max: AT_ONCE },
      settings: {
        dbSchema: 'public',
        dbTable: 'outbox',
        enableMaxAttemptsProtection: false,
        enablePoisonousMessageProtection: false,
        nextMessagesBatchSize: AT_ONCE,
        nextMessagesFunctionName: 'next_outbox_messages',
        nextMessagesPollingIntervalInMs: 10,
      },
    }
    const store = outbox.initializeMessageStorage(config, logger)
    const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS })
    return {
      async install() {
        const { dropAndCreateTable, createPollingFunction, setupPollingIndexes } = outbox.DatabaseSetup
        const setup = { outboxOrInbox: 'outbox', schema: 'public', table: 'outbox' }
        const polling = { ...setup, nextMessagesName: config.settings.nextMessagesFunctionName }
        await pool.query(dropAndCreateTable(setup))
        await pool.query(createPollingFunction(polling))
        await pool.query(setupPollingIndexes(polling))
      },
      enqueue(number) {
        const { topic, key, payload, headers } = eventOf(number)
        const message = {
          id: randomUUID(),
          aggregateType: topic,
          aggregateId: key,
          messageType: 'traded',
          segment: key,
          payload,
          metadata: headers,
          createdAt: new Date().toISOString(),
        }
        return inTransaction(pool, (client) => store(message, client))
      },
      fill: (count) =>
        inChunks(count, 1000, async (numbers) => {
          await pool.query(FILL_MESSAGES, [JSON.stringify(numbers.map((number) => eventOf(number)))])
        }),
      deliver(take) {
        const handler = {
          handle({ payload }: Message) {
            take(payload as Payload)
            return Promise.resolve()
          },
        }
        const [shutdown] = outbox.initializePollingMessageListener(config, handler, logger, {
          batchSizeStrategy: () => Promise.resolve(AT_ONCE),
        })
        return Promise.resolve(shutdown)
      },
      close: () => pool.end(),
    }
  },
}
