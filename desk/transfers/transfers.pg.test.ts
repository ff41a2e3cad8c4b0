import { randomUUID } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { Desks, foundAfter, violations } from '../testing/desks.ts'
import { transfers } from './index.ts'

const database = await testDatabase()
const desks = await Desks.start(database, [transfers])

async function open(id: string, openingBalance: number, hot = false): Promise<void> {
  expect((await desks.post('/accounts', { id, openingBalance, hot })).status).toBe(201)
}

/** A name that no earlier attempt of a test has used. */
function fresh(name: string): string {
  return `${name}-${randomUUID().slice(0, 8)}`
}

async function balance(id: string): Promise<number> {
  return Number((await desks.get(`/accounts/${id}`)).body['balance'])
}

describe('transfers', () => {
  test('opens an account once for concurrent requests', async () => {
    const account = { id: fresh('crowd'), openingBalance: 500 }
    const answers = await Promise.all(Array.from({ length: 10 }, () => desks.post('/accounts', account)))
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([
      ...Array.from({ length: 9 }, () => 200),
      201,
    ])
    expect(answers.every(({ body }) => Number(body['balance']) === 500)).toBe(true)
  })

  test.each([
    ['ordinary accounts', false],
    ['a hot account', true],
  ])('makes each transfer once, in both directions, each sent twice at once: %s', async (name, hot) => {
    const [one, other] = [fresh('one'), fresh('other')]
    await open(one, 1_000, hot)
    await open(other, 1_000)
    const answers = await Promise.all(
      Array.from({ length: 30 }, (_, turn) => {
        const [from, to] = turn % 2 === 0 ? [one, other] : [other, one]
        return desks.postTwice('/transfers', { from, to, amount: 10 + turn })
      }),
    )
    const made = new Set<unknown>()
    for (const pair of answers) {
      const ids = pair.filter(({ status }) => status === 201).map(({ body }) => body['id'])
      // Of two at once the second receives the same answer, or that the first still runs.
      for (const { status } of pair) expect([201, 409]).toContain(status)
      expect(new Set(ids).size).toBe(1)
      made.add(ids[0])
    }
    expect(made.size).toBe(30)
    // 15 more go one way than the other, by 1 each.
    expect([await balance(one), await balance(other)]).toEqual([1_015, 985])
    expect(name).not.toBe('')
  })

  test.each([false, true])('changes nothing without sufficient funds (hot: %s)', async (hot) => {
    const [poor, rich] = [fresh('poor'), fresh('rich')]
    await open(poor, 100, hot)
    await open(rich, 0)
    const body = { from: poor, to: rich, amount: 70 }
    const answers = await Promise.all([desks.post('/transfers', body), desks.post('/transfers', body)])
    const [made, refused] = answers.toSorted((a, b) => a.status - b.status)
    expect([made?.status, refused?.status]).toEqual([201, 422])
    expect(refused?.body).toMatchObject({ code: 'insufficient-funds', balance: 30, instance: '/transfers' })
    expect(await balance(poor)).toBe(30)
  })

  test.each([false, true])('rejects a key that was used for another transfer (hot: %s)', async (hot) => {
    const [from, to] = [fresh('from'), fresh('to')]
    await open(from, 100, hot)
    await open(to, 0)
    const key = randomUUID()
    const first = await desks.post('/transfers', { from, to, amount: 10 }, { key })
    const again = await desks.post('/transfers', { from, to, amount: 10 }, { key })
    expect([again.status, again.text]).toEqual([201, first.text])
    expect(again.headers.get('idempotency-replayed')).toBe('true')
    const another = await desks.post('/transfers', { from, to, amount: 11 }, { key })
    expect([another.status, another.body['code']]).toEqual([422, 'key-reused'])
    expect(await balance(from)).toBe(90)
  })

  test('rejects a key that is too long for a hot account, too', async () => {
    const hot = fresh('hot')
    await open(hot, 100, true)
    const body = { from: hot, to: 'bob', amount: 1 }
    expect((await desks.post('/transfers', body, { key: 'x'.repeat(3_000) })).status).toBe(400)
  })

  test('rejects a key that was used for a transfer to a hot account', async () => {
    const [one, other, hot] = [fresh('one'), fresh('other'), fresh('hot')]
    await Promise.all([open(one, 100), open(other, 100), open(hot, 100, true)])
    const key = randomUUID()
    expect((await desks.post('/transfers', { from: one, to: hot, amount: 1 }, { key })).status).toBe(201)
    const reused = await desks.post('/transfers', { from: one, to: other, amount: 1 }, { key })
    expect([reused.status, reused.body['code']]).toEqual([422, 'key-reused'])
  })

  test('makes every transfer of a burst on two accounts, and leaves connections for other requests', async () => {
    const [one, other, reader] = [fresh('one'), fresh('other'), fresh('reader')]
    await Promise.all([open(one, 1_000), open(other, 1_000), open(reader, 7)])
    const locked = await desks.pool.connect()
    await locked.query(`BEGIN; SELECT FROM lockstep_desk.accounts WHERE id = '${one}' FOR UPDATE`)
    // Five times as many as the pool has connections, each in one attempt.
    const burst = Array.from({ length: 40 }, (_, turn) => {
      const [from, to] = turn % 2 === 0 ? [one, other] : [other, one]
      const headers = { 'content-type': 'application/json', 'idempotency-key': randomUUID() }
      return desks.ask('/transfers', { method: 'POST', headers, body: JSON.stringify({ from, to, amount: 1 }) }, 0)
    })
    const waits = `SELECT count(*)::int AS n FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name = 'desk-1' AND wait_event_type = 'Lock'`
    await expect.poll(async () => (await desks.pool.query<{ n: number }>(waits)).rows[0]?.n).toBe(1)
    const { pool } = desks.desk(0)
    // The others wait without a connection, and a request for something else gets one.
    await expect.poll(() => pool.waitingCount).toBe(0)
    expect(await desks.ask(`/accounts/${reader}`, {}, 0)).toMatchObject({ status: 200, body: { balance: 7 } })
    expect((await desks.pool.query(waits)).rows).toEqual([{ n: 1 }])
    await locked.query('ROLLBACK')
    locked.release()
    expect((await Promise.all(burst)).map(({ status }) => status)).toEqual(burst.map(() => 201))
    expect([await balance(one), await balance(other)]).toEqual([1_000, 1_000])
  })

  test('ends a statement with the balance, and derives each line from the one before', async () => {
    await open('saver', 100)
    await open('spender', 50)
    await desks.post('/transfers', { from: 'spender', to: 'saver', amount: 20 })
    await desks.post('/transfers', { from: 'saver', to: 'spender', amount: 5 })
    const { body } = await desks.get('/accounts/saver/statement')
    expect(body).toMatchObject([
      { counterparty: 'bank', amount: 100, balance: 100 },
      { counterparty: 'spender', amount: 20, balance: 120 },
      { counterparty: 'spender', amount: -5, balance: 115 },
    ])
    expect((await desks.get('/accounts/nobody/statement')).status).toBe(404)
  })

  test('rejects unknown accounts and invalid amounts', async () => {
    const unknown = await desks.post('/transfers', { from: 'nobody', to: 'saver', amount: 1 })
    expect([unknown.status, unknown.body['code']]).toEqual([404, 'not-found'])
    for (const body of [
      { from: 'saver', to: 'saver', amount: 1 },
      { from: 'bank', to: 'saver', amount: 1 },
      { from: 'saver', to: 'spender', amount: 0 },
      { from: 'saver', to: 'spender', amount: 1.5 },
      { from: 'saver', to: 'spender' },
    ]) {
      const { status, body: problem } = await desks.post('/transfers', body)
      expect([status, problem['code']]).toEqual([400, 'invalid-request'])
      expect(problem['fields']).not.toEqual([])
    }
  })

  test('passes the check after these tests, with rows to check', async () => {
    const findings = await transfers.check(desks.pool)
    expect(violations(findings)).toEqual([])
    expect(findings.every(({ looked }) => looked > 0)).toBe(true)
  })

  const ONE = 'SELECT id FROM lockstep_desk.transfers LIMIT 1'
  test.each([
    [
      'the two entries of a transfer sum up to 0',
      `UPDATE lockstep_desk.entries SET amount = amount + 1 WHERE transfer = (${ONE}) AND amount > 0`,
    ],
    ['the two entries of a transfer sum up to 0', `DELETE FROM lockstep_desk.entries WHERE transfer = (${ONE})`],
    [
      'a balance is the sum of its entries',
      `UPDATE lockstep_desk.accounts SET balance = balance + 1 WHERE id = 'saver'`,
    ],
    ['all balances together are 0', `UPDATE lockstep_desk.accounts SET balance = balance - 1 WHERE id = 'bank'`],
    [
      'no account was ever below 0',
      `INSERT INTO lockstep_desk.entries (transfer, account, amount) SELECT (${ONE}), 'saver', n FROM (VALUES (-999), (999)) AS v (n)`,
    ],
    [
      'an Idempotency-Key has one transfer at most',
      `ALTER TABLE lockstep_desk.transfers DROP CONSTRAINT one_transfer_a_request;
       UPDATE lockstep_desk.transfers SET request = 'twice' WHERE id IN (SELECT id FROM lockstep_desk.transfers LIMIT 2)`,
    ],
  ])('reports a violation: %s', async (invariant, sql) => {
    const findings = await foundAfter(desks.pool, transfers, sql)
    expect(findings.find((finding) => finding.invariant === invariant)?.violations).not.toEqual([])
  })
})
