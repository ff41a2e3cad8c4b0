import { userInfo } from 'node:os'
import pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import { callCommand, type Ran } from '../../tools/server/testing/commandLine.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { failureOf, signal } from '../../tools/server/testing/workbench.ts'
import { Lockstep } from '../index.ts'

const database = await testDatabase()
const pool = new pg.Pool({ connectionString: database.url })
// The sessions that `--terminate` ends are also heard of here.
pool.on('error', () => undefined)
const lockstep = new Lockstep(pool)

afterAll(async () => {
  await lockstep.close()
  await pool.end()
})

const run = (...args: string[]): Promise<Ran> => callCommand(['leases', ...args], { url: database.url })

describe.each(['pg', 'postgres'])('lockstep leases, with %s', (driver) => {
  const key = (name: string): `${string}:${string}` => `Of-${driver}:${name}`
  const here = ['--driver', driver]

  test('reports that there is no lease', async () => {
    const [text, json] = await Promise.all([
      run(...here, '--prefix', key('')),
      run(...here, '--json', '--prefix', key('')),
    ])
    expect(text).toEqual({
      code: 0,
      stdout: `No lease of Of-${driver}:… is held or waited for in this database.\n`,
      stderr: '',
    })
    expect(JSON.parse(json.stdout)).toMatchObject({ ok: true, command: 'leases', schema: 'lockstep', leases: [] })
  })

  test('lists holders and waiters, as text and as JSON', async () => {
    const lease = await lockstep.leases.acquire(key('1'), { holder: 'api\u001B[2J', metadata: { step: 3 } })
    const semaphore = await lockstep.leases.acquire(key('2'), { holder: 'export', permits: 3 })
    const waiting = lockstep.leases.acquire(key('1'), { holder: 'worker', waitMs: 30_000 })
    const waiters = async (): Promise<number> => (await lockstep.leases.inspect(key('1'))).waiters.length
    await expect.poll(waiters).toBe(1)
    const [text, json] = await Promise.all([
      run(...here, '--prefix', key('')),
      run(...here, '--json', '--prefix', key('')),
    ])
    expect(text).toMatchObject({ code: 0, stderr: '' })
    expect(text.stdout).toMatch(/^KEY +HOLDER +FOR +LEFT +WAITERS\n/)
    expect(text.stdout).toMatch(
      new RegExp(
        `^${key('1')} +api\uFFFD\\[2J +held [\\d.]+ m?s +[23][\\d.]+ s +1\n +worker +waits [\\d.]+ m?s\n` +
          `${key('2')} \\(1 of 3\\) +export +held [\\d.]+ m?s +[23][\\d.]+ s\n\n2 leases, 2 holders, 1 waiter\\.\n$`,
        'm',
      ),
    )
    const { leases } = JSON.parse(json.stdout) as { leases: unknown[] }
    expect(leases).toMatchObject([
      {
        key: key('1'),
        permits: 1,
        // 64 bits, as text.
        holders: [{ holder: 'api\u001B[2J', metadata: { step: 3 }, slot: 0, fence: String(lease.fence) }],
        waiters: [{ holder: 'worker' }],
      },
      { key: key('2'), permits: 3, holders: [{ holder: 'export', metadata: null }], waiters: [] },
    ])
    await lease.release()
    await (await waiting).release()
    await semaphore.release()
  })

  test('releases a lease, with who and why in the history', async () => {
    const lease = await lockstep.leases.acquire(key('3'), { holder: 'stuck' })
    const released = await run('release', key('3'), '--reason', 'it hangs\nfor hours', ...here)
    const { username } = userInfo()
    expect(released).toEqual({
      code: 0,
      stdout: `${key('3')} was taken away from 1 holder, by ${username}.\n`,
      stderr: '',
    })
    await expect(lease.transaction({}, async () => Promise.resolve())).rejects.toMatchObject({ reason: 'taken away' })
    const again = await run('release', key('3'), '--reason', 'again', '--by', 'ann', '--json', ...here)
    expect(again.code).toBe(0)
    expect(JSON.parse(again.stdout)).toMatchObject({ ok: true, key: key('3'), by: 'ann', released: 0 })
    await lockstep.lease(key('3'), { holder: 'next' }, async () => Promise.resolve())
    const [text, json, last] = await Promise.all([
      run('history', key('3'), ...here),
      run('history', key('3'), '--json', ...here),
      run('history', key('3'), '--limit', '1', '--json', ...here),
    ])
    expect(text.stdout).toMatch(/^ENDED +HOLDER +HELD FOR +ENDING +BY +WHY\n/)
    expect(text.stdout).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +next +\d+ ms +released\n/m)
    expect(text.stdout).toMatch(new RegExp(`stuck +[\\d.]+ m?s +forced +${username} +it hangs for hours\n$`))
    const forced = { ending: 'forced', by: username, reason: 'it hangs\nfor hours', fence: String(lease.fence) }
    expect(JSON.parse(json.stdout)).toMatchObject({
      ok: true,
      command: 'leases history',
      key: key('3'),
      history: [{ holder: 'next', ending: 'released', by: null, reason: null }, forced],
    })
    expect((JSON.parse(last.stdout) as { history: unknown[] }).history).toHaveLength(1)
    await lease.release()
    expect((await run('history', key('never'), ...here)).stdout).toBe(`Nothing is remembered of ${key('never')}.\n`)
  })

  test('waits for a holder with an open transaction, or ends it', async () => {
    const lease = await lockstep.leases.acquire(key('4'))
    const [open, end] = [signal(), signal()]
    const work = failureOf(
      lease.transaction({ retry: false }, async (tx) => {
        open.give()
        await end.given
        await tx.query('SELECT 1')
      }),
    )
    await open.given
    const busy = await run('release', key('4'), '--reason', 'x', '--wait', '50', ...here)
    expect(busy).toMatchObject({ code: 1, stdout: '' })
    expect(busy.stderr).toMatch(/^pg-lockstep: The lease on .* could not be taken away within 50 ms/)
    expect(busy.stderr).toContain('code: LOCKSTEP_LEASE_BUSY')
    const ended = await run('release', key('4'), '--reason', 'x', '--terminate', ...here)
    expect(ended).toMatchObject({ code: 0, stderr: '' })
    end.give()
    expect(await work).toBeInstanceOf(Error)
    await lease.release()
  })
})

test.each([
  ['No lease was named.', ['release']],
  ['--reason is missing.', ['release', 'Instance:1']],
  ['--wait cannot be "long".', ['release', 'Instance:1', '--reason', 'x', '--wait', 'long']],
  ['--limit is for `leases history`.', ['release', 'Instance:1', '--reason', 'x', '--limit', '3']],
  ['instance', ['release', 'instance', '--reason', 'x']],
  ['`reason` is no text, empty, or too long.', ['release', 'Instance:1', '--reason', 'x'.repeat(1001)]],
  ['No lease was named.', ['history']],
  ['limit is 0.', ['history', 'Instance:1', '--limit', '0']],
  ['--reason is for `leases release`.', ['history', 'Instance:1', '--reason', 'x']],
  ['--terminate is for `leases release`.', ['--terminate']],
  ['--prefix is for the list of leases.', ['history', 'Instance:1', '--prefix', 'x']],
  ['does not know', ['list']],
])('rejects before anything is sent: %s', async (complaint, args) => {
  const { code, stdout, stderr } = await run(...args)
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  expect(stderr).toContain(complaint)
})
