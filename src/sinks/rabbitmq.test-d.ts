import amqp, { type ChannelModel, type ConfirmChannel, type RecoveringChannelModel } from 'amqplib'
import { expectTypeOf, test } from 'vitest'
import { type RabbitChannel, type RabbitConnection, rabbitmqSink } from './rabbitmq.ts'

test('the sink accepts objects of amqplib', () => {
  expectTypeOf<ChannelModel>().toExtend<RabbitConnection>()
  expectTypeOf<RecoveringChannelModel>().toExtend<RabbitConnection>()
  expectTypeOf<ConfirmChannel>().toExtend<RabbitChannel>()
  void (() => {
    rabbitmqSink({ connect: () => amqp.connect('amqp://localhost'), exchange: 'events' })
    rabbitmqSink({
      connect: () => amqp.connect('amqp://localhost'),
      exchange: 'events',
      routingKey: ({ topic, key }) => `${topic}.${key}`,
    })
    // @ts-expect-error an exchange has to be named
    rabbitmqSink({ connect: () => amqp.connect('amqp://localhost') })
    // @ts-expect-error a channel is no connection
    rabbitmqSink({ connect: async () => (await amqp.connect('amqp://localhost')).createConfirmChannel(), exchange: '' })
  })
})
