import { createHmac } from 'node:crypto'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { eventOf } from './sinkBench.conformance.ts'
import { verifyWebhook } from './webhook.ts'
import { newSecret, receiver, SECRET, sendOne, sinkTo, type Taken } from './webhookReceiver.conformance.ts'

afterEach(() => vi.useRealTimers())

describe('signatures', () => {
  test('follow the standard: over the sent bytes, one per secret, new for every attempt', async () => {
    const { url, taken } = await receiver()
    const secrets = [newSecret(), newSecret()]
    const sink = sinkTo(url, { secret: secrets })
    const event = eventOf('t', 'k', 1, { payload: { text: 'Größe ✓' } })
    vi.useFakeTimers({ toFake: ['Date'], now: 1_800_000_000_000 })
    await sendOne(sink, event)
    vi.setSystemTime(1_800_000_100_000)
    await sendOne(sink, event)
    expect(taken.map(({ headers }) => headers['webhook-timestamp'])).toEqual(['1800000000', '1800000100'])
    for (const { headers, body } of taken) {
      expect(headers['webhook-id']).toBe(event.id)
      expect(headers['idempotency-key']).toBe(event.id)
      const signed = Buffer.concat([Buffer.from(`${event.id}.${headers['webhook-timestamp']}.`), body])
      const expected = secrets.map((secret) => {
        const key = Buffer.from(secret.slice('whsec_'.length), 'base64')
        return `v1,${createHmac('sha256', key).update(signed).digest('base64')}`
      })
      expect(headers['webhook-signature']).toBe(expected.join(' '))
    }
    const [, last] = taken as [Taken, Taken]
    // A receiver that has one of the two, whichever.
    for (const secret of secrets) expect(verifyWebhook(last.headers, last.body, secret).payload).toEqual(event.payload)
    expect(verifyWebhook(new Headers(last.headers), last.body, [newSecret(), ...secrets])).toMatchObject({ seq: 1 })
  })

  async function oneRequest(event = eventOf('t', 'k', 3, { headers: { tenant: 'eu' }, fence: 7n })): Promise<Taken> {
    const { url, taken } = await receiver()
    expect(await sendOne(sinkTo(url), event)).toBe('sent')
    return taken[0] as Taken
  }

  test('detect any change of a request, and reject an old one', async () => {
    const { headers, body } = await oneRequest()
    expect(verifyWebhook(headers, body, SECRET)).toMatchObject({ seq: 3, fence: 7n, headers: { tenant: 'eu' } })
    const wrong: [string, Record<string, string | string[] | undefined>, Buffer][] = [
      ['body', headers, Buffer.concat([body, Buffer.from(' ')])],
      ...[
        ['lockstep-seq', '4'],
        ['lockstep-topic', 'u'],
        ['lockstep-key', 'l'],
        ['lockstep-fence', '8'],
        ['lockstep-tombstone', 'skipped'],
        ['lockstep-enqueued-at', new Date(0).toISOString()],
        ['lockstep-headers', Buffer.from('{"tenant":"us"}').toString('base64url')],
        ['lockstep-id', '7f7d3dd5-3a3d-4a43-8e7d-bd3b0ff4c9c4'],
        ['content-type', 'text/plain'],
        ['webhook-id', '7f7d3dd5-3a3d-4a43-8e7d-bd3b0ff4c9c4'],
        ['webhook-timestamp', String(Number(headers['webhook-timestamp']) + 1)],
        ['webhook-timestamp', '1e9'],
        ['webhook-signature', 'v1,'],
        ['webhook-signature', headers['lockstep-signature']],
        ['lockstep-signature', headers['webhook-signature']],
      ].map(([name, value]): [string, Record<string, string | undefined>, Buffer] => [
        name as string,
        { ...headers, [name as string]: value },
        body,
      ]),
      ...['lockstep-seq', 'lockstep-headers', 'webhook-signature', 'lockstep-signature', 'webhook-timestamp'].map(
        (name): [string, Record<string, string | undefined>, Buffer] => [name, { ...headers, [name]: undefined }, body],
      ),
    ]
    for (const [what, changed, bytes] of wrong) {
      expect(() => verifyWebhook(changed, bytes, SECRET), what).toThrow(
        expect.objectContaining({ code: 'LOCKSTEP_WEBHOOK_UNVERIFIED' }) as Error,
      )
    }
    expect(() => verifyWebhook(headers, body, newSecret())).toThrow('No signature')
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 302_000 })
    expect(() => verifyWebhook(headers, body, SECRET)).toThrow('not of this time')
    expect(verifyWebhook(headers, body, SECRET, { toleranceMs: 600_000 }).seq).toBe(3)
  })

  test('ignore headers that a proxy adds or changes', async () => {
    const { headers, body } = await oneRequest()
    const seen = verifyWebhook({ ...headers, 'x-forwarded-for': '1.2.3.4', tenant: 'changed' }, body, SECRET)
    expect(seen.headers).toEqual({ tenant: 'eu' })
  })

  test('keep an event from passing as a tombstone or setting headers of the sink', async () => {
    const own = {
      'Lockstep-Tombstone': 'skipped',
      'lockstep-tombstone': 'dead',
      'Webhook-Id': 'x',
      'LOCKSTEP-SEQ': '9',
    }
    const { headers, body } = await oneRequest(eventOf('t', 'k', 1, { headers: { ...own, tenant: 'eu' } }))
    const event = verifyWebhook(headers, body, SECRET)
    expect(event.tombstone).toBeUndefined()
    expect(event).toMatchObject({ seq: 1, headers: { tenant: 'eu' }, payload: { seq: 1 } })
  })
})
