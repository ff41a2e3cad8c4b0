import { describe, expect, test } from 'vitest'
import { parseOptions } from './options.ts'

describe('the options of the desk', () => {
  test('have sensible defaults', () => {
    expect(parseOptions([], {})).toMatchObject({
      processes: 1,
      poolSize: 10,
      waitMs: 10_000,
      host: '127.0.0.1',
      port: undefined,
      token: undefined,
      operator: false,
      sink: { name: 'local', url: '' },
      traffic: true,
      url: undefined,
    })
    expect(parseOptions(['-h'], {})).toBe('help')
    expect(parseOptions(['--sink', 'nats'], { DATABASE_URL: 'postgres://x' })).toMatchObject({
      sink: { name: 'nats', url: 'nats://127.0.0.1:4222' },
      url: 'postgres://x',
    })
  })

  test.each([
    [['--processes', '0'], '--processes must be a number from 1 to 64, not "0".'],
    [['--pool', '3'], '--pool must be a number from 4 to 1000, not "3".'],
    [['--port', '70000'], '--port must be a number from 0 to 65535, not "70000".'],
    [['--host', '0.0.0.0'], '--host 0.0.0.0 is open to others: it needs a --token.'],
    [['--host', '0.0.0.0', '--token', 'short'], '--token must have at least 16 characters.'],
    [['--sink', 'pigeon'], '--sink must be one of local, nats, redis, rabbitmq, webhook, kafka, not "pigeon".'],
    [['--sink-url', 'nats://x'], '--sink-url is for a broker: choose it with --sink.'],
    [['--sink', 'webhook', '--sink-url', 'http://x'], '--sink webhook with --sink-url needs DESK_WEBHOOK_SECRET'],
    [['--sometimes'], "Unknown option '--sometimes'"],
  ])('refuse %j', (args, message) => {
    expect(() => parseOptions(args, {})).toThrow(message)
  })

  test('let a loopback address be without a token', () => {
    for (const host of ['localhost', '::1', '127.0.0.2'])
      expect(parseOptions(['--host', host], {})).toMatchObject({ host })
    const open = parseOptions(['--host', '0.0.0.0', '--token', '0123456789abcdef'], {})
    expect(open).toMatchObject({ token: '0123456789abcdef' })
  })
})
