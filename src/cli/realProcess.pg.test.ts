import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import * as vitest from 'vitest'
import { afterAll, expect, inject, test } from 'vitest'
import { CAPACITY_COSTS } from '../../tools/server/testing/capacityCosts.ts'
import { runCommand } from '../../tools/server/testing/commandLine.ts'
import { key } from '../index.ts'
import { testDatabase } from '../testing/index.ts'
import { commands } from './commands.ts'

/** The tests of the commands call them in their own process, where a connection that is left open ends nothing later. */

const folder = await mkdtemp(join(tmpdir(), 'lockstep-process-'))
afterAll(() => rm(folder, { recursive: true, force: true }))

const db = testDatabase(vitest, {
  url: inject('adminUrl'),
  template: inject('templateDatabase'),
  per: 'file',
  pool: (url) => new pg.Pool({ connectionString: url }),
})

const consumed = join(folder, 'consumed.jsonl')
const costs = join(folder, 'costs.json')

/** In the order in which they can be run. Each with what it prints, so that one that did nothing is found. */
const LINES: readonly (readonly [line: string, prints: RegExp])[] = [
  ['status', /^ok +server/m],
  ['grants --to app --as application', /GRANT /],
  ['locks', /./],
  ['leases', /Instance:1/],
  ['leases release Instance:1 --reason gone', /Instance:1/],
  ['leases history Instance:1', /gone/],
  ['rollout', /There are no rules/],
  ['rollout set Any: observe', /Any: is observe/],
  ['rollout unset Any:', /The rule for Any: is gone/],
  ['guard', /./],
  ['guard add notes --key Note:{id}', /notes/],
  ['guard set notes enforce', /notes/],
  ['guard samples notes', /./],
  ['guard remove notes', /notes/],
  ['outbox', /4 streams parked/],
  ['outbox status', /4 streams parked/],
  ['outbox parked', /4 streams, 4 events/],
  ['outbox events --topic orders', /1 byte\n[^]*2 of 5 positions/],
  ['outbox redrive parked --topic orders --preview', /2 streams would be tried again/],
  ['outbox redrive dead --all --reason again', /There is no such dead letter/],
  ['outbox retry orders a', /orders\/a is due/],
  ['outbox skip orders a --reason withdrawn', /head of orders\/a was given up/],
  ['consumers', /2 consumers, 4 streams parked/],
  ['consumers list', /2 consumers, 4 streams parked/],
  ['consumers positions billing', /bills +c +#1/],
  ['consumers retry billing bills a', /bills\/a is due/],
  ['consumers skip billing bills b --reason withdrawn', /head of bills\/b was given up/],
  ['outbox pause orders b', /orders\/b is paused/],
  ['outbox resume orders b', /orders\/b goes on/],
  [
    'outbox import --table notes --topic notes --key {id} --order id --payload body --preview',
    /0 rows of public.notes would be/,
  ],
  ['outbox replay', /"topic":"orders"/],
  ['outbox retain --older-than 1d', /Nothing was dropped/],
  ['outbox erase orders b --reason asked', /payloads of 1 event/],
  ['outbox rebase --deliver none --reason restored', /./],
  ['outbox split default --shards 64 --preview', /8 shards of default would become 64/],
  ['outbox split default --shards 64 --reason growth', /8 shards of default became 64/],
  ['outbox remove default --reason replaced', /default/],
  [`outbox verify ${consumed}`, /./],
  [`capacity --events-per-s 100 --costs ${costs}`, /bottleneck/],
  ['completion bash', /pg-lockstep/],
  ['help', /pg-lockstep/],
]

test('each command does its work in a process of its own, and ends by itself', { timeout: 600_000 }, async () => {
  const { lockstep } = db
  await db.pool.query('CREATE TABLE notes (id integer PRIMARY KEY, body json)')
  await writeFile(costs, JSON.stringify(CAPACITY_COSTS))
  await writeFile(consumed, JSON.stringify({ topic: 'orders', key: 'a', seq: 1, id: 'x' }))
  await lockstep.leases.acquire(key`Instance:1`, { ttlMs: 60_000 })
  await lockstep.transaction({}, async (tx) => {
    await tx.enqueue({ topic: 'orders', key: 'a', payload: 1 })
    await tx.enqueue({ topic: 'orders', key: 'b', payload: 2 })
  })
  await db.drain({ dispatcher: 'default', sink: (events) => events.map(() => ({ refused: 'not today' })) })
  await lockstep.transaction({}, (tx) =>
    tx.enqueueMany(['a', 'b', 'c'].map((account) => ({ topic: 'bills', key: account, payload: 1 }))),
  )
  const billing = lockstep.consumer('billing', { topics: ['bills'], attempts: 1 }, async ({ key: account }) => {
    if (account !== 'c') throw new Error('no such account')
  })
  await billing.drain()
  for (const [n, [line, prints]] of LINES.entries()) {
    const driver = /^(?:capacity|completion|help|outbox verify)/.test(line)
      ? []
      : ['--driver', n % 2 === 0 ? 'pg' : 'postgres']
    const ran = await runCommand([...line.split(' '), ...driver], { url: db.directUrl })
    expect([ran.code, ran.stdout + ran.stderr], line).toEqual([0, expect.stringMatching(prints)])
  }
})

test('no command and no verb is left out', () => {
  // These run until they are interrupted, for minutes, or in a project: their own tests start processes. main.pg.test.ts has the two others.
  const elsewhere = ['init', 'console', 'dev', 'prove', 'migrate', 'doctor']
  const verbs = commands.flatMap(({ name, words }) =>
    words.length === 0 || ['help', 'completion'].includes(name) ? [name] : words.map((word) => `${name} ${word}`),
  )
  const started = (verb: string): boolean => LINES.some(([line]) => `${line} `.startsWith(`${verb} `))
  expect(verbs.filter((verb) => !started(verb) && !elsewhere.includes(verb))).toEqual([])
})
