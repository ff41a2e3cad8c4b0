import { once } from 'node:events'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { callCommand, type Ran, startCommand } from '../../tools/server/testing/commandLine.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { Lockstep, type OutboxEvent, EventRefusedError, perEvent } from '../index.ts'

const database = await testDatabase()
const pool = new pg.Pool({ connectionString: database.url })
afterAll(() => pool.end())

const run = (...args: string[]): Promise<Ran> => callCommand(['outbox', ...args], { url: database.url })

describe.each(['pg', 'postgres'])('with %s', (driver) => {
  const schema = `outbox_${driver}`
  const lockstep = new Lockstep(pool, { schema })
  const here = ['--driver', driver, '--schema', schema]
  const sent: string[] = []
  let refused = new Set<string>()
  const ending: (() => Promise<void>)[] = []

  beforeAll(() => lockstep.migrate())
  afterEach(async () => {
    for (const end of ending.splice(0)) await end()
  })
  afterAll(() => lockstep.close())

  function nameOf({ topic, key, seq, tombstone }: OutboxEvent): string {
    return `${topic}/${key} #${seq}${tombstone === undefined ? '' : ` ${tombstone}`}`
  }

  /** A dispatcher whose sink takes everything but what is refused. */
  function dispatch(name: string, attempts = 1000): () => Promise<void> {
    const stop = new AbortController()
    const dispatcher = lockstep.outbox.dispatcher({
      name,
      shards: 2,
      attempts,
      holder: `worker of ${name}`,
      // Once it is refused, it waits for an operator, or nearly so.
      backoffMs: { first: 600_000, longest: 600_000 },
      sink: perEvent({}, (event) => {
        if (refused.has(nameOf(event))) throw new EventRefusedError(`no ${event.key}\u001B[2J`)
        sent.push(`${name} ${nameOf(event)}`)
      }),
    })
    const running = dispatcher.run({ signal: stop.signal })
    const end = async (): Promise<void> => {
      stop.abort()
      await running
    }
    ending.push(end)
    return end
  }

  async function enqueue(topic: string, key: string, count = 1): Promise<void> {
    for (let i = 0; i < count; i++) {
      await lockstep.transaction({}, async (tx) => tx.enqueue({ topic, key, payload: { i } }))
    }
  }

  const sentOf = (start: string): string[] => sent.filter((each) => each.startsWith(start))
  const arrived = (start: string, ...names: string[]): Promise<void> =>
    expect.poll(() => sentOf(start)).toEqual(names.map((name) => `${start}${name}`))

  test('reports an outbox without a dispatcher', async () => {
    const [text, json, parked] = await Promise.all([
      run(...here),
      run('status', '--json', ...here),
      run('parked', ...here),
    ])
    expect(text).toMatchObject({ code: 0, stderr: '' })
    expect(text.stdout).toMatch(
      /^No dispatcher has run yet: nothing is delivered, and everything is kept\.\n\nSEGMENT +OPENED +LEFT +SIZE\n1 +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +- +[\d.]+ kB +current\n\n1 segment, [\d.]+ kB\.\n$/,
    )
    expect(JSON.parse(json.stdout)).toMatchObject({
      ok: true,
      command: 'outbox status',
      schema,
      shards: [],
      segments: [{ number: 1, current: true, leftAt: null }],
      totals: { dispatchers: 0, lagEvents: 0, segments: 1 },
    })
    expect(parked).toEqual({ code: 0, stdout: 'No stream waits.\n', stderr: '' })
  })

  test('shows owners, lag and parked streams in the status', async () => {
    refused = new Set(['trades/bad #2'])
    const end = dispatch('audit')
    await enqueue('trades', 'bad', 3)
    await enqueue('trades', 'good', 2)
    await arrived('audit trades/good', ' #1', ' #2')
    await expect.poll(() => lockstep.outbox.parked()).toMatchObject([{ events: 2 }])
    const alive = await run('--json', ...here)
    const { shards } = JSON.parse(alive.stdout) as { shards: Record<string, unknown>[] }
    expect(shards.map(({ owner }) => owner)).toEqual(['worker of audit', 'worker of audit'])
    // 64 bits, as text.
    for (const { fence } of shards) expect(fence).toMatch(/^\d+$/)
    await end()
    await enqueue('trades', 'late', 3)
    const [text, json] = await Promise.all([run('status', ...here), run('status', '--json', ...here)])
    expect(text).toMatchObject({ code: 0, stderr: '' })
    expect(text.stdout).toMatch(/^DISPATCHER +SHARD +OWNER +EVENTS +BEHIND +OLDEST UNDELIVERED +PARKED +HELD\n/)
    expect(text.stdout).toMatch(
      /^audit +[01] +none +3 +[\d.]+ (?:m?s|min \d+ s) +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +[1-] +-$/m,
    )
    expect(text.stdout).toMatch(/^audit +[01] +none +0 +- +- +[1-] +-$/m)
    expect(text.stdout).toMatch(
      /\n\n1 dispatcher, 2 shards, 2 without an owner; 3 events behind by [\d.]+ m?s at most, 1 stream parked; 1 segment, [\d.]+ kB\.\n$/,
    )
    expect(JSON.parse(json.stdout)).toMatchObject({
      shards: [
        { dispatcher: 'audit', shard: 0, owner: null },
        { dispatcher: 'audit', shard: 1, owner: null },
      ],
      totals: { dispatchers: 1, shards: 2, ownerless: 2, lagEvents: 3, parkedStreams: 1 },
    })
  })

  test('lists parked streams of all dispatchers or of one', async () => {
    const [text, json, none] = await Promise.all([
      run('parked', ...here),
      run('parked', '--dispatcher', 'audit', '--json', ...here),
      run('parked', '--dispatcher', 'other', ...here),
    ])
    expect(text).toMatchObject({ code: 0, stderr: '' })
    expect(text.stdout).toMatch(
      /^DISPATCHER +TOPIC +KEY +STATE +ATTEMPTS +EVENTS +HEAD +NEXT ATTEMPT +REASON\naudit +trades +bad +parked +1 +2 +#2 +in \d+ min \d+ s +no bad\uFFFD\[2J\n\n1 stream, 2 events\.\n$/,
    )
    expect(JSON.parse(json.stdout)).toMatchObject({
      ok: true,
      command: 'outbox parked',
      streams: [{ dispatcher: 'audit', topic: 'trades', key: 'bad', state: 'parked', attempts: 1, events: 2, head: 2 }],
    })
    expect(none.stdout).toBe('No stream of other waits.\n')
    const full = await run('parked', '--limit', '1', ...here)
    expect(full.stdout).toContain('1 stream, 2 events. There may be more: see --limit.\n')
  })

  test('retries at once, and the stream goes on in order', async () => {
    refused = new Set(['trades/again #1'])
    dispatch('default')
    await enqueue('trades', 'again', 3)
    await expect
      .poll(async () => (await lockstep.outbox.parked({ dispatcher: 'default' })).map(({ key }) => key))
      .toContain('again')
    refused = new Set()
    const retried = await run('retry', 'trades', 'again', ...here)
    expect(retried).toEqual({
      code: 0,
      stdout: 'trades/again is due: the dispatcher default tries it again now.\n',
      stderr: '',
    })
    await arrived('default trades/again', ' #1', ' #2', ' #3')
    await expect.poll(() => lockstep.outbox.parked({ dispatcher: 'default' })).toEqual([])
  })

  test('skips with a tombstone, and reports a blocked stream', async () => {
    refused = new Set(['trades/dead #1'])
    dispatch('short', 1)
    await enqueue('trades', 'dead', 2)
    await expect.poll(() => lockstep.outbox.parked({ dispatcher: 'short' })).toMatchObject([{ key: 'dead', events: 2 }])
    await lockstep.outbox.retry({ topic: 'trades', key: 'dead', dispatcher: 'short' })
    const blocked = async (): Promise<string> => (await run('parked', '--dispatcher', 'short', ...here)).stdout
    await expect.poll(() => blocked()).toMatch(/^short +trades +dead +blocked +\d +2 +#1 +- /m)
    const skipped = await run(
      'skip',
      'trades',
      'dead',
      '--reason',
      'it is\nbad',
      '--dispatcher',
      'short',
      '--json',
      ...here,
    )
    expect(skipped).toMatchObject({ code: 0, stderr: '' })
    expect(JSON.parse(skipped.stdout)).toEqual({
      ok: true,
      command: 'outbox skip',
      schema,
      topic: 'trades',
      key: 'dead',
      dispatcher: 'short',
      seq: 1,
      reason: 'it is\nbad',
    })
    await arrived('short trades/dead', ' #1 skipped', ' #2')
    const { rows } = await pool.query(`SELECT verb, seq::int, reason FROM ${schema}.outbox_audit WHERE verb = 'skip'`)
    expect(rows).toEqual([{ verb: 'skip', seq: 1, reason: 'it is\nbad' }])
  })

  test('pauses and resumes', async () => {
    refused = new Set()
    dispatch('default')
    await enqueue('trades', '-7')
    await arrived('default trades/-7', ' #1')
    const paused = await run('pause', '--reason', 'look', ...here, '--', 'trades', '-7')
    expect(paused).toEqual({
      code: 0,
      stdout: 'trades/-7 is paused: the dispatcher default keeps its events back, in order, until it is resumed.\n',
      stderr: '',
    })
    await enqueue('trades', '-7', 2)
    await enqueue('trades', 'other')
    await arrived('default trades/other', ' #1')
    await expect
      .poll(async () => (await run('parked', '--dispatcher', 'default', ...here)).stdout)
      .toMatch(/^default +trades +-7 +paused +0 +2 +#2 +- +look$/m)
    expect(sentOf('default trades/-7')).toHaveLength(1)
    const retried = await run('retry', ...here, '--', 'trades', '-7')
    expect(retried).toEqual({
      code: 1,
      stdout: '',
      stderr:
        'pg-lockstep: retry trades/-7: paused.\nIt was paused by an operator: resume it.\ncode: LOCKSTEP_STREAM_NOT_PARKED\n',
    })
    const resumed = await run('resume', ...here, '--', 'trades', '-7')
    expect(resumed.stdout).toBe('trades/-7 goes on: the dispatcher default sends what it has kept back.\n')
    await arrived('default trades/-7', ' #1', ' #2', ' #3')
  })

  test('reports what does not exist with a code and advice', async () => {
    const [dispatcher, stream, json] = await Promise.all([
      run('retry', 'trades', 'good', '--dispatcher', 'nobody', ...here),
      run('skip', 'trades', 'no such', '--reason', 'x', '--dispatcher', 'audit', ...here),
      run('resume', 'trades', 'no such', '--dispatcher', 'audit', '--json', ...here),
    ])
    expect(dispatcher).toMatchObject({ code: 1, stdout: '' })
    expect(dispatcher.stderr).toContain("There is no dispatcher 'nobody': look at `npx pg-lockstep outbox status`.")
    expect(stream).toMatchObject({ code: 1, stdout: '' })
    expect(stream.stderr).toContain('Look at `npx pg-lockstep outbox parked` for the streams that wait.')
    expect(json.code).toBe(1)
    expect(JSON.parse(json.stdout)).toMatchObject({ ok: false, error: { code: 'LOCKSTEP_STREAM_NOT_PARKED' } })
  })

  test('refreshes with --watch until an interrupt', async () => {
    const child = startCommand(['outbox', '--watch', '--json', ...here], { url: database.url })
    let stdout = ''
    child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
    const lags = (): unknown[] =>
      stdout
        .split('\n')
        .slice(0, -1)
        .map((line) => (JSON.parse(line) as { totals: { lagEvents: unknown } }).totals.lagEvents)
    await expect.poll(() => lags().length).toBeGreaterThan(0)
    const before = Number(lags()[0])
    await enqueue('trades', 'watched')
    // Three dispatchers have it before them.
    await expect.poll(() => lags().at(-1)).toBe(before + 3)
    child.kill('SIGINT')
    expect(await once(child, 'close')).toEqual([0, null])
  })
})

test.each([[['status']], [['parked']], [['retry', 'a', 'b']], [['retain', '--older-than', '1d']], [['replay']]])(
  'reports a database without the schema: %j',
  async (args) => {
    const { code, stdout, stderr } = await run(...args, '--schema', 'no_such')
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr).toContain('code: LOCKSTEP_SCHEMA_MISSING')
  },
)
