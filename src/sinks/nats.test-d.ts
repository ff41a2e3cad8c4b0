import type { JsMsg } from '@nats-io/jetstream'
import type { Msg, NatsConnection } from '@nats-io/transport-node'
import { expectTypeOf, test } from 'vitest'
import type { Sink } from '../outbox/index.ts'
import { type NatsClient, type NatsMessage, natsSink } from './nats.ts'

test('the sink accepts a connection of NATS', () => {
  expectTypeOf<NatsConnection>().toExtend<NatsClient>()
  expectTypeOf(natsSink).toBeCallableWith({ client: {} as NatsConnection, stream: 'EVENTS' })
  expectTypeOf(natsSink).returns.toEqualTypeOf<Sink>()
})

test('the reader accepts messages of NATS', () => {
  expectTypeOf<JsMsg>().toExtend<NatsMessage>()
  expectTypeOf<Msg>().toExtend<NatsMessage>()
})
