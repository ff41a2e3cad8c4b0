import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import * as vitest from 'vitest'
import { afterAll, expect, inject, test } from 'vitest'
import { CAPACITY_COSTS } from '../../tools/server/testing/capacityCosts.ts'
import { shapeFaults, shapeNames } from '../../tools/server/testing/cliShapes.ts'
import { key } from '../index.ts'
import { hold, testDatabase } from '../testing/index.ts'
import { parseCommandLine } from './commandLine.ts'
import { commands } from './commands.ts'

const folder = await mkdtemp(join(tmpdir(), 'lockstep-shapes-'))
afterAll(() => rm(folder, { recursive: true, force: true }))

const db = testDatabase(vitest, {
  url: inject('adminUrl'),
  template: inject('templateDatabase'),
  per: 'file',
  pool: (url) => new pg.Pool({ connectionString: url }),
})

/** What a command line answers as JSON. */
async function answer(line: string): Promise<Record<string, unknown>> {
  const args = [...line.matchAll(/"([^"]*)"|\S+/g)].map(([whole, quoted]) => quoted ?? whole)
  const whole = args.flatMap((each) => (each === 'URL' ? ['--url', db.directUrl] : [each]))
  const { command, call } = parseCommandLine(whole, commands)
  const outcome = await command!.run(call)
  return JSON.parse(JSON.stringify(outcome.json)) as Record<string, unknown>
}

const seen = new Set<string>()
async function expectShape(line: string): Promise<Record<string, unknown>> {
  const json = await answer(line)
  expect(shapeFaults(json), line).toBeUndefined()
  seen.add(String(json['command']))
  return json
}

test('every command has a shape, and every shape a command', () => {
  const wordsOf = (noun: string): readonly string[] => commands.find(({ name }) => name === noun)?.words ?? []
  const verbs = { leases: ['release', 'history'], outbox: wordsOf('outbox'), consumers: wordsOf('consumers') }
  const names = commands.flatMap(({ name }) => [
    ...(name === 'outbox' || name === 'consumers' ? [] : [name]),
    ...(name === 'leases' || name === 'outbox' || name === 'consumers'
      ? verbs[name].map((verb) => `${name} ${verb}`)
      : []),
  ])
  expect(names.filter((name) => !shapeNames.includes(name))).toEqual([])
  const shared = ['error', 'version', 'finding', 'claim', 'waiter', 'blockingNode', 'lock', 'lease', 'shard', 'segment']
  const parts = [
    ...shared,
    'consumer',
    'dispatcher',
    'outboxTotals',
    'parkedStream',
    'deadLetter',
    'storedEvent',
    'event',
  ]
  expect(shapeNames.filter((name) => !names.includes(name) && !parts.includes(name))).toEqual([])
})

test('a shape refuses a field that it does not know, and misses one that is gone', async () => {
  const { schema: _, ...without } = await answer('grants --to app --as application')
  expect(shapeFaults(without)).toContain("must have required property 'schema'")
  expect(shapeFaults({ ...without, schema: 'lockstep', more: 1 })).toContain('must NOT have additional properties')
  expect(shapeFaults({ ok: true, command: 'unheard-of' })).toContain('no shape')
})

test('what commands answer about a database in use has the documented shape', async () => {
  const { lockstep } = db
  const held = await hold(lockstep, key`Order:1`)
  const waiting = db.open().lockstep.transaction({ lock: key`Order:1` }, async () => undefined)
  await held.waiters(1)
  const lease = await lockstep.leases.acquire(key`Instance:1`, { metadata: { step: 1 } })
  const queued = lockstep.leases.acquire(key`Instance:1`, { waitMs: false })
  await expect.poll(async () => (await lockstep.leases.inspect(key`Instance:1`)).waiters.length).toBe(1)

  const locks = await expectShape('locks URL --statements')
  expect(locks).toMatchObject({ tree: [{ blocks: [{}] }] })
  await expectShape('locks URL')
  expect(await expectShape('leases URL')).toMatchObject({ leases: [{ holders: [{}], waiters: [{}] }] })
  await expectShape('status URL')
  await expectShape('doctor URL')
  await expectShape('doctor URL --schema no_such_schema')
  await expectShape('migrate URL')
  await expectShape('migrate URL --schema another')
  expect(await expectShape('rollout URL set Transfer: 10% --reason why')).toMatchObject({ rules: [{}] })
  await expectShape('rollout URL set Transfer: observe')
  await expectShape('rollout URL unset Transfer:')
  await db.pool.query('CREATE TABLE guarded (id integer)')
  expect(await expectShape('guard URL add guarded --key Account:{id}')).toMatchObject({ guards: [{}] })
  await db.pool.query('INSERT INTO guarded VALUES (1); TRUNCATE guarded')
  expect(await expectShape('guard URL samples guarded')).toMatchObject({ samples: [{}] })
  await expectShape('guard URL set guarded 10%')
  await expectShape('guard URL remove guarded')

  await held.release()
  await waiting
  await expectShape('leases release Instance:1 URL --reason "its host is gone"')
  await (await queued).release()
  await lease.release()
  expect((await expectShape('leases history Instance:1 URL'))['history']).toHaveLength(2)
})

test('what commands answer about the outbox has the documented shape', async () => {
  const { lockstep } = db
  await expectShape('outbox URL')
  await lockstep.transaction({}, async (tx) => {
    await tx.enqueue({ topic: 'orders', key: 'a', payload: 1 })
    await tx.enqueue({ topic: 'orders', key: 'b', payload: 2 })
  })
  await db.drain({ dispatcher: 'default', sink: (events) => events.map(() => ({ refused: 'not today' })) })
  expect(await expectShape('outbox status URL')).toMatchObject({ totals: { parkedStreams: 2 } })
  expect((await expectShape('outbox parked URL'))['streams']).toHaveLength(2)
  expect((await expectShape('outbox redrive parked URL --all --preview'))['streams']).toHaveLength(2)
  expect((await expectShape('outbox events URL --topic orders --payloads'))['events']).toHaveLength(2)
  await expectShape('outbox retry orders a URL')
  await expectShape('outbox skip orders a URL --reason "price withdrawn"')
  await expectShape('outbox pause orders c URL')
  await expectShape('outbox resume orders c URL')
  await expectShape('outbox erase orders b URL --reason "asked to"')
  await db.pool.query('CREATE TABLE old_outbox (id bigserial PRIMARY KEY, k text, payload json)')
  const columns = 'outbox import URL --table old_outbox --topic old --key {k} --order id'
  expect(await expectShape(`${columns} --preview`)).toMatchObject({ state: 'preview', pending: 0 })
  expect(await expectShape(`${columns} --reason moving`)).toMatchObject({ state: 'active', copied: 0 })
  expect(await expectShape('outbox import URL --table old_outbox --finish --reason done')).toMatchObject({ ok: true })
  await expectShape('outbox retain URL --older-than 1d')
  const sink = join(folder, 'sink.mjs')
  await writeFile(sink, 'export default async () => undefined\n')
  await expectShape(`outbox replay URL --sink ${sink}`)
  await expectShape('outbox rebase URL --deliver none --reason restored')
  expect(await expectShape('outbox split default URL --shards 64 --preview')).toMatchObject({ owned: 0, to: 64 })
  await expectShape('outbox remove default URL --reason replaced')
  const consumed = join(folder, 'consumed.jsonl')
  const event = (seq: number, id: string): string => JSON.stringify({ topic: 'orders', key: 'a', seq, id })
  await writeFile(consumed, [event(1, 'x'), event(4, 'y'), event(2, 'z'), event(4, 'y'), event(1, 'w')].join('\n'))
  expect(await expectShape(`outbox verify ${consumed}`)).toMatchObject({ ok: false, inversions: { count: 1 } })
})

test('what commands answer about consumers has the documented shape', async () => {
  const { lockstep } = db
  await expectShape('consumers URL')
  await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'bills', key: 'a', payload: 1 }))
  await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'bills', key: 'b', payload: 1 }))
  const options = { topics: ['bills'], attempts: 1 }
  const consumer = lockstep.consumer('billing', options, async ({ key: of }) => {
    if (of === 'b') throw new Error('no account')
  })
  await consumer.drain()
  const { consumers } = await expectShape('consumers list URL')
  expect(consumers).toContainEqual(
    expect.objectContaining({
      name: 'billing',
      dispatched: true,
      topics: ['bills'],
      streams: 1,
      lagEvents: 0,
      parkedStreams: 1,
      waiting: [
        expect.objectContaining({ topic: 'bills', key: 'b', head: 1, reason: expect.stringContaining('no account') }),
      ],
    }),
  )
  expect(await expectShape('consumers positions billing URL')).toMatchObject({
    positions: [{ topic: 'bills', key: 'a', seq: 1 }],
    next: null,
  })
  await expectShape('consumers retry billing bills b URL')
  expect(await expectShape('consumers skip billing bills b URL --reason "no such account"')).toMatchObject({ seq: 1 })
  await consumer.drain()
  expect((await expectShape('consumers positions billing URL'))['positions']).toHaveLength(2)
  const page = await expectShape('consumers positions billing URL --topic bills --limit 1')
  expect(page).toMatchObject({ positions: [{ key: 'a' }] })
  expect(await expectShape(`consumers positions billing URL --cursor ${String(page['next'])}`)).toMatchObject({
    positions: [{ key: 'b' }],
    next: null,
  })
})

test('what the other commands answer has the documented shape', async () => {
  await expectShape('grants --to app --as application,producer')
  await expectShape('help')
  await expectShape('help outbox')
  const costs = join(folder, 'costs.json')
  await writeFile(costs, JSON.stringify(CAPACITY_COSTS))
  await expectShape(`capacity --events-per-s 100 --costs ${costs}`)
  await expectShape('completion zsh')
  vitest.vi.stubEnv('SHELL', '/bin/bash')
  await expectShape('completion')
  vitest.vi.unstubAllEnvs()
})

test('every shape of a command that ends by itself was compared', () => {
  // These run until they are interrupted, or for minutes, or write a file: their own tests compare them.
  const elsewhere = ['init', 'console', 'dev', 'prove', 'version', 'error']
  const all = shapeNames.filter((name) => commands.some((command) => name.split(' ')[0] === command.name))
  expect(all.filter((name) => !seen.has(name) && !elsewhere.includes(name))).toEqual([])
})
