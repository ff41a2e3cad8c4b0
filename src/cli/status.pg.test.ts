import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { expect, test } from 'vitest'
import { type Ran, runCommand, startCommand } from '../../tools/server/testing/commandLine.ts'
import { signal, testBench } from '../../tools/server/testing/workbench.ts'
import { perEvent } from '../outbox/index.ts'
import { KNOWN_VERSION } from '../postgres/index.ts'

const bench = await testBench()

const lockstep = (args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ran> =>
  runCommand(args, { url: bench.url, env })

test('shows the status with a database, and help without one', async () => {
  const [text, json, help, helpJson] = await Promise.all([
    lockstep([]),
    lockstep(['--json']),
    lockstep([], { DATABASE_URL: '' }),
    lockstep(['--json'], { DATABASE_URL: '' }),
  ])
  for (const ran of [text, json, help, helpJson]) expect(ran).toMatchObject({ code: 0, stderr: '' })
  expect(text.stdout).toMatch(/^ok {4}server {2}PostgreSQL \d+\.\d+ at 127\.0\.0\.1:\d+, database \w+$/m)
  expect(text.stdout).toMatch(new RegExp(`^ok {4}schema {2}"lockstep" is at version ${KNOWN_VERSION}, `, 'm'))
  expect(text.stdout).toMatch(/^ok {4}leases {2}0 held, 0 waiters$/m)
  expect(JSON.parse(json.stdout)).toMatchObject({ ok: true, command: 'status', schemaVersion: KNOWN_VERSION })
  expect(help.stdout).toContain('Usage: pg-lockstep [COMMAND] [OPTIONS]')
  expect(help.stdout).toMatch(/\n\nNo database was named\. Set DATABASE_URL, or write --url \S+\n$/)
  expect(JSON.parse(helpJson.stdout)).toMatchObject({ ok: true, command: 'help', hint: expect.any(String) })
})

test('counts what is held, waited for and parked', async () => {
  const [holder, waiter] = [bench.open('pg', { max: 6 }).lockstep, bench.open('pg').lockstep]
  const [held, leave] = [signal(), signal()]
  const first = holder.transaction({ lock: ['Order:1', 'Order:2'] }, () => (held.give(), leave.given))
  await held.given
  const second = waiter.transaction({ lock: 'Order:1' }, async () => undefined)
  await bench.waiters(1)
  const lease = await holder.leases.acquire('Instance:1', { ttlMs: 60_000 })
  const event = { topic: 'trades', payload: 1 }
  await waiter.transaction({}, async (tx) => tx.enqueueMany(['a', 'b'].map((key) => ({ ...event, key }))))
  const stopping = new AbortController()
  const sink = perEvent({}, ({ key }) => {
    if (key === 'a') throw new Error('not this one')
  })
  const running = holder.outbox.dispatcher({ sink, shards: 2, attempts: 1 }).run({ signal: stopping.signal })
  await expect.poll(async () => (await holder.outbox.parked()).length).toBe(1)

  // The test's own, and those of the dispatcher.
  const leases = (await holder.leases.list()).reduce((sum, { holders }) => sum + holders.length, 0)
  expect(leases).toBeGreaterThan(2)
  const [json, text] = await Promise.all([lockstep(['status', '--json']), lockstep(['status'])])
  expect(JSON.parse(json.stdout)).toMatchObject({
    leases: { held: leases, waiters: 0 },
    locks: { held: 2, waiters: 1, blockedByMs: expect.any(Number) },
    outbox: { dispatchers: 1, shards: 2, ownerless: 0, parkedStreams: 1 },
  })
  expect(text.stdout).toMatch(/^\w+ +locks +2 held, 1 waiter; the longest transaction in the way is open for /m)
  expect(text.stdout).toMatch(
    /^warn {2}outbox {2}1 dispatcher, 2 shards; nothing undelivered, 1 stream parked\n +→ pg-lockstep outbox parked$/m,
  )
  leave.give()
  stopping.abort()
  await Promise.all([first, second, running, lease.release()])
})

test('fails once for a missing schema, with advice', async () => {
  const [text, json] = await Promise.all([
    lockstep(['status', '--schema', 'nowhere']),
    lockstep(['--schema', 'nowhere', '--json']),
  ])
  expect(text).toMatchObject({ code: 1, stderr: '' })
  expect(text.stdout).toMatch(
    /^fail {2}schema {2}The database has no Lockstep schema "nowhere"\.\n +→ Run `npx pg-lockstep/m,
  )
  expect(text.stdout).toMatch(/^fail {2}doctor {2}1 of \d+ checks failed: schema/m)
  expect(text.stdout).not.toMatch(/outbox {2}/)
  expect(json.code).toBe(1)
  expect(JSON.parse(json.stdout)).toMatchObject({ ok: false, schemaVersion: null, leases: null, outbox: null })
})

test('refreshes with --watch until an interrupt, and exits with 0', async () => {
  const child = startCommand(['--watch', '--json'], { url: bench.url })
  const lines: string[] = []
  for await (const line of createInterface(child.stdout)) {
    lines.push(line)
    if (lines.length === 2) child.kill('SIGINT')
  }
  expect(child.exitCode ?? ((await once(child, 'exit')) as [number])[0]).toBe(0)
  const moments = lines.map((line) => JSON.parse(line) as { at: string; doctor: { level: string } })
  expect(moments.length).toBeGreaterThan(1)
  expect(new Set(moments.map(({ at }) => at)).size).toBe(moments.length)
})

test('prints help, version and completion as JSON', async () => {
  const env = { DATABASE_URL: '' }
  const lines = [['--help'], ['locks', '--help'], ['help', 'locks'], ['--version'], ['completion', 'bash']]
  const answers = await Promise.all(lines.map(async (line) => lockstep([...line, '--json'], env)))
  const [help, about, same, version, completion] = answers.map(({ stdout }) => JSON.parse(stdout) as object)
  expect(help).toMatchObject({ ok: true, command: 'help' })
  expect(about).toMatchObject({ ok: true, commands: [{ name: 'locks' }] })
  expect(same).toEqual(about)
  expect(version).toMatchObject({ ok: true, command: 'version', version: expect.stringMatching(/^\d+\.\d+\.\d+/) })
  expect(completion).toMatchObject({ ok: true, shell: 'bash', text: expect.stringContaining('complete -F') })
})
