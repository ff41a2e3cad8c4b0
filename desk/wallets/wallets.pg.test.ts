import { randomUUID } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { Desks, foundAfter, violations } from '../testing/desks.ts'
import { wallets } from './index.ts'

const database = await testDatabase()
const desks = await Desks.start(database, [wallets])

async function fill(id: string, amount: number): Promise<void> {
  await desks.post('/wallets', { id })
  expect((await desks.post(`/wallets/${id}/deposits`, { amount })).status).toBe(201)
}

const bid = (auction: string, wallet: string, amount: number, key?: string) =>
  desks.post(`/auctions/${auction}/bids`, { wallet, amount }, key === undefined ? {} : { key })

async function contents(id: string): Promise<unknown> {
  return (await desks.get(`/wallets/${id}`)).body
}

describe('wallets', () => {
  test('accepts only higher bids of concurrent bidders, and refunds those that are outbid', async () => {
    const bidders = ['a', 'b', 'c', 'd', 'e']
    await Promise.all(bidders.map((id) => fill(id, 10_000)))
    for (const id of ['left', 'right']) await desks.post('/auctions', { id, reserve: 10 })
    const answers = await Promise.all(
      Array.from({ length: 60 }, (_, turn) =>
        bid(turn % 2 === 0 ? 'left' : 'right', bidders[turn % bidders.length] as string, 10 + turn),
      ),
    )
    for (const { status, body } of answers) {
      expect([201, 409]).toContain(status)
      // On a busy machine a bid can have waited for its lock as long as it may.
      if (status === 409 && (body as { code?: string }).code !== 'busy')
        expect(body).toMatchObject({ code: 'bid-too-low', leading: expect.any(Number) as number })
    }
    const accepted = answers.filter(({ status }) => status === 201).length
    expect(accepted).toBeGreaterThan(2)
    const findings = await wallets.check(desks.pool)
    expect(violations(findings)).toEqual([])
    expect(findings[1]?.looked).toBe(accepted)
  })

  test('reserves with a bid, releases when outbid, and pays on close', async () => {
    await fill('anna', 100)
    await fill('berta', 100)
    await desks.post('/auctions', { id: 'vase', reserve: 50 })
    expect((await bid('vase', 'anna', 40)).body).toMatchObject({ code: 'bid-too-low', leading: null, reserve: 50 })
    expect((await bid('vase', 'anna', 60)).status).toBe(201)
    expect(await contents('anna')).toEqual({ id: 'anna', available: 40, reserved: 60 })
    expect((await bid('vase', 'berta', 60)).body).toMatchObject({ status: 409, leading: 60 })
    expect((await bid('vase', 'berta', 101)).body).toMatchObject({ status: 422, code: 'insufficient-funds' })
    expect((await bid('vase', 'berta', 70)).status).toBe(201)
    expect(await contents('anna')).toEqual({ id: 'anna', available: 100, reserved: 0 })
    // Its own bid, raised: what was reserved for the first counts.
    expect((await bid('vase', 'berta', 100)).status).toBe(201)
    expect(await contents('berta')).toEqual({ id: 'berta', available: 0, reserved: 100 })
    const closing = await Promise.all([desks.post('/auctions/vase/close'), desks.post('/auctions/vase/close')])
    expect(closing.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 409])
    expect(await contents('berta')).toEqual({ id: 'berta', available: 0, reserved: 0 })
    expect((await bid('vase', 'anna', 100)).body).toMatchObject({ status: 409, code: 'auction-closed', leading: 100 })
  })

  test('counts a retried bid and a retried deposit once', async () => {
    await fill('dora', 100)
    await desks.post('/auctions', { id: 'lamp', reserve: 1 })
    const key = randomUUID()
    const first = await bid('lamp', 'dora', 20, key)
    // By now it would be too low.
    const again = await bid('lamp', 'dora', 20, key)
    expect([first.status, again.status, again.text]).toEqual([201, 201, first.text])
    const pair = await desks.postTwice('/wallets/dora/deposits', { amount: 7 })
    for (const { status } of pair) expect([201, 409]).toContain(status)
    expect(await contents('dora')).toEqual({ id: 'dora', available: 87, reserved: 20 })
  })

  test('rejects unknown wallets and auctions', async () => {
    expect((await bid('nothing', 'dora', 20)).status).toBe(404)
    expect((await bid('lamp', 'nobody', 99)).status).toBe(404)
    expect((await desks.post('/wallets/nobody/deposits', { amount: 1 })).status).toBe(404)
    expect((await desks.post('/auctions/nothing/close')).status).toBe(404)
  })

  test('passes the check after these tests, with rows to check', async () => {
    const findings = await wallets.check(desks.pool)
    expect(violations(findings)).toEqual([])
    expect(findings.every(({ looked }) => looked > 0)).toBe(true)
  })

  test.each([
    [
      'what is reserved is the sum of the leading bids',
      `UPDATE lockstep_desk.auction_wallets SET reserved = reserved + 1, available = available - 1 WHERE id = 'dora'`,
    ],
    [
      'each bid is higher than the one before it',
      `INSERT INTO lockstep_desk.bids (id, auction, wallet, amount) VALUES (gen_random_uuid(), 'lamp', 'dora', 20)`,
    ],
    ['the last bid leads', `UPDATE lockstep_desk.auctions SET leading_wallet = 'anna' WHERE id = 'lamp'`],
    [
      'no money is lost or made',
      `UPDATE lockstep_desk.auction_wallets SET available = available + 1 WHERE id = 'dora'`,
    ],
  ])('reports a violation: %s', async (invariant, sql) => {
    const findings = await foundAfter(desks.pool, wallets, sql)
    expect(findings.find((finding) => finding.invariant === invariant)?.violations).not.toEqual([])
  })
})
