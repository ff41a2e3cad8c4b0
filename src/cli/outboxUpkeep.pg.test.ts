import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { callCommand, type Ran } from '../../tools/server/testing/commandLine.ts'
import { testServer } from '../../tools/server/testDatabase.ts'
import { Lockstep, perEvent } from '../index.ts'

// Retention looks at transactions of the whole server.
const database = await testServer()
const pool = new pg.Pool({ connectionString: database.url })
afterAll(() => pool.end())

const run = (...args: string[]): Promise<Ran> => callCommand(['outbox', ...args], { url: database.url })

describe.each(['pg', 'postgres'])('with %s', (driver) => {
  const schema = `upkeep_${driver}`
  const lockstep = new Lockstep(pool, { schema })
  const here = ['--driver', driver, '--schema', schema]
  const sent: string[] = []
  let [stop, running] = [new AbortController(), Promise.resolve()]

  beforeAll(() => lockstep.migrate())
  afterEach(async () => {
    stop.abort()
    await running
    sent.length = 0
  })
  afterAll(() => lockstep.close())

  function dispatch(): Promise<void> {
    stop = new AbortController()
    const sink = perEvent({}, ({ key, seq, tombstone = '' }) => void sent.push(`${key} #${seq} ${tombstone}`.trim()))
    const ran = lockstep.outbox.dispatcher({ shards: 1, retainMs: false, sink }).run({ signal: stop.signal })
    running = ran.catch(() => undefined)
    return ran
  }

  async function enqueue(key: string, count = 1): Promise<void> {
    await lockstep.transaction({}, async (tx) => {
      for (let i = 0; i < count; i++) await tx.enqueue({ topic: 'mails', key, payload: { to: 'ann' } })
    })
  }

  const arrived = (...names: string[]): Promise<void> => expect.poll(() => sent).toEqual(names)

  test('changes nothing by a rebase without cursors', async () => {
    await enqueue('early')
    const { code, stdout } = await run('rebase', '--deliver', 'none', '--reason', 'x', ...here)
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: 'No dispatcher has run yet. The first one begins with the oldest event that there is.\n',
    })
    void dispatch()
    await arrived('early #1')
  })

  test('reports what retain has dropped', async () => {
    const early = await run('retain', '--older-than', '1d', ...here)
    expect(early.stdout).toBe(
      'Nothing was dropped: no segment was left 1d ago or earlier and has been passed by every dispatcher.\n',
    )
    void dispatch()
    await enqueue('r')
    await arrived('r #1')
    // One that runs can pass the segment as soon as it is left, while the round still looks.
    stop.abort()
    await running
    const begun = await run('retain', '--older-than', '0s', ...here)
    expect(begun).toMatchObject({ code: 0, stderr: '' })
    expect(begun.stdout).toMatch(/^Nothing was dropped: .*\nA new segment was begun\.\n$/)
    // Only what comes after the segment was left shows that it was passed; and a transaction of any database of this server that began
    // before that could still be one that writes to it.
    const { rows } = await pool.query<{ now: string }>('SELECT pg_current_xact_id()::text AS now')
    const ended = 'SELECT pg_snapshot_xmin(pg_current_snapshot()) > $1::xid8 AS all'
    await expect.poll(async () => (await pool.query(ended, [rows[0]?.now])).rows).toEqual([{ all: true }])
    void dispatch()
    await enqueue('r')
    await arrived('r #1', 'r #2')
    await expect
      .poll(async () => (await lockstep.outbox.status()).shards.filter(({ lagEvents }) => lagEvents > 0))
      .toEqual([])
    // Its cursor stays where it is: the next segment is not passed before the round looks.
    stop.abort()
    await running
    const readied = await run('retain', '--older-than', '0s', ...here)
    expect(readied.stdout).toMatch(
      /^Nothing was dropped yet\.\n1 segment was made ready: say it again in a minute to drop it, .*\nA new segment was begun\.\n$/,
    )
    const dropped = await run('retain', '--older-than', '0s', ...here)
    expect(dropped.stdout).toMatch(
      /^1 segment was dropped:\n {2}segment 1: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d to \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, [\d.]+ kB\n/,
    )
    const json = await run('retain', '--older-than', '15m', '--json', ...here)
    expect(JSON.parse(json.stdout)).toEqual({
      ok: true,
      command: 'outbox retain',
      schema,
      olderThanMs: 900_000,
      dropped: 0,
      readied: 0,
      rotated: false,
      segments: [],
    })
    const listed = await run(...here)
    expect(listed.stdout).toMatch(/^2 +\S+ \S+ +\d\S+ \S+ +[\d.]+ kB\n3 +\S+ \S+ +- +[\d.]+ kB +current$/m)
  })

  test('erases payloads', async () => {
    await enqueue('ann', 2)
    const erased = await run('erase', 'mails', 'ann', '--reason', 'she asked', ...here)
    expect(erased).toEqual({
      code: 0,
      stdout: 'The payloads of 2 events of mails/ann are gone. What is not delivered yet goes out as a tombstone.\n',
      stderr: '',
    })
    void dispatch()
    await arrived('ann #1 erased', 'ann #2 erased')
    const [again, json] = await Promise.all([
      run('erase', 'mails', 'ann', '--reason', 'x', ...here),
      run('erase', 'mails', 'nobody', '--reason', 'x', '--json', ...here),
    ])
    expect(again.stdout).toContain('No retained event of mails/ann had a payload.')
    expect(JSON.parse(json.stdout)).toMatchObject({ ok: true, topic: 'mails', key: 'nobody', reason: 'x', erased: 0 })
    const { rows } = await pool.query(`SELECT reason FROM ${schema}.outbox_audit WHERE verb = 'erase' AND key = 'ann'`)
    expect(rows).toEqual(expect.arrayContaining([{ reason: 'she asked' }]))
  })

  test('delivers of a restored outbox what rebase decides', async () => {
    await enqueue('restored', 2)
    // As if this were a copy on another server.
    await pool.query(`UPDATE ${schema}.outbox_dispatchers SET system = 'another'`)
    await expect(dispatch()).rejects.toMatchObject({ code: 'LOCKSTEP_OUTBOX_REBASE_NEEDED' })
    const preview = await run('rebase', '--deliver', 'undelivered', '--preview', ...here)
    expect(preview).toEqual({
      code: 0,
      stdout: `What was undelivered in this copy would be parked, 2 events.
Nothing was changed. Run it again without --preview and with --reason.
`,
      stderr: '',
    })
    await expect(dispatch()).rejects.toMatchObject({ code: 'LOCKSTEP_OUTBOX_REBASE_NEEDED' })
    const rebased = await run('rebase', '--deliver', 'undelivered', '--reason', 'restored', ...here)
    expect(rebased).toEqual({
      code: 0,
      stdout: `What was undelivered in this copy was parked, 2 events: dispatchers send it, stream by stream, in order.
The cursors are good for this server: default.
`,
      stderr: '',
    })
    void dispatch()
    await arrived('restored #1', 'restored #2')
  })

  test('delivers only new events after rebase --deliver none', async () => {
    await enqueue('old', 2)
    const rebased = await run('rebase', '--deliver', 'none', '--reason', 'x', '--json', ...here)
    expect(JSON.parse(rebased.stdout)).toMatchObject({
      ok: true,
      command: 'outbox rebase',
      deliver: 'none',
      putAside: 0,
      torn: [],
      dispatchers: ['default'],
    })
    void dispatch()
    await enqueue('old')
    await arrived('old #3')
  })

  test('delivers everything again after rebase --deliver all', async () => {
    const { events } = await lockstep.outbox.replay({ sink: () => undefined })
    const rebased = await run('rebase', '--deliver', 'all', '--reason', 'x', ...here)
    expect(rebased.stdout).toContain(`Everything that is retained was parked, ${events} events:`)
    void dispatch()
    await expect.poll(() => sent).toHaveLength(events)
    expect(sent.filter((each) => each.startsWith('old'))).toEqual(['old #1', 'old #2', 'old #3'])
  })
})
