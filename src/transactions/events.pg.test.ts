import { readFileSync } from 'node:fs'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, note, pidOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { type EventName, events, on } from '../observe/index.ts'

const bench = await testBench()

type Heard = readonly [EventName, Record<string, unknown>]

let heard: Heard[] = []
let stops: (() => void)[] = []

beforeEach(() => {
  heard = []
  stops = (Object.keys(events) as EventName[]).map((name) =>
    on(name, (message) => {
      // Whether a wait is slow depends on the machine: it has tests of its own.
      if (name !== 'lock.slow') heard.push([name, message as unknown as Record<string, unknown>])
    }),
  )
})
afterEach(() => {
  for (const stop of stops) stop()
})

function names(): EventName[] {
  return heard.map(([name]) => name)
}

/** The fields that are the same for every event of one call. */
const order = { schema: 'lockstep', keys: ['Order:1'], sharedKeys: [] }
/** Milliseconds within a test: neither NaN nor a date. */
const aTime = expect.closeTo(15_000, -4.5) as number

describe.each(DRIVERS)('events, %s', (driver) => {
  test('report an uncontended transaction', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1', lockShared: 'Ledger:open' }, async () => heard.push(['ran'] as never))
    const keys = { schema: 'lockstep', keys: ['Order:1'], sharedKeys: ['Ledger:open'] }
    expect(heard).toEqual([
      ['lock.requested', keys],
      ['lock.acquired', { ...keys, waitMs: aTime, contended: false, attempt: 1 }],
      ['ran'],
      ['lock.released', { ...keys, holdMs: aTime, outcome: 'committed' }],
    ])
  })

  test('report the same for a lock that is handed over', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({ lock: 'Order:1', isolation: 'serializable' }, async () => undefined)
    expect(heard).toEqual([
      ['lock.requested', order],
      ['lock.acquired', { ...order, waitMs: aTime, contended: false, attempt: 1 }],
      ['lock.released', { ...order, holdMs: aTime, outcome: 'committed' }],
    ])
  })

  test('report a rollback', async () => {
    const { lockstep } = bench.open(driver)
    await failureOf(lockstep.transaction({ lock: 'Order:1' }, async () => Promise.reject(new Error('no'))))
    expect(names()).toEqual(['lock.requested', 'lock.acquired', 'lock.released'])
    expect(heard.at(-1)?.[1]).toEqual({ ...order, holdMs: aTime, outcome: 'rolledBack' })
  })

  test('report nothing without a lock, nested or joined', async () => {
    const { lockstep, begin } = bench.open(driver)
    await lockstep.transaction({}, (tx) => tx.transaction({}, async () => undefined))
    await begin('', (client) => lockstep.join(client, { lock: 'Order:1' }))
    await failureOf(lockstep.transaction({}, async () => Promise.reject(new Error('no'))))
    expect(heard).toEqual([])
    await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await tx.transaction({ lock: 'Order:1' }, async () => undefined)
      await failureOf(tx.transaction({ lock: 'Order:2' }, async () => undefined))
      await failureOf(lockstep.transaction({ lock: 'Order:2' }, async () => undefined))
    })
    expect(names()).toEqual(['lock.requested', 'lock.acquired', 'lock.released'])
  })

  test('report contention in this process', async () => {
    const { lockstep } = bench.open(driver)
    const leave = signal()
    const first = lockstep.transaction({ lock: 'Order:1' }, () => leave.given)
    await expect.poll(names).toContain('lock.acquired')
    const second = lockstep.transaction({ lock: 'Order:1' }, async () => undefined)
    await expect.poll(names).toContain('lock.contended')
    leave.give()
    await Promise.all([first, second])
    expect(heard).toEqual([
      ['lock.requested', order],
      ['lock.acquired', { ...order, waitMs: aTime, contended: false, attempt: 1 }],
      ['lock.requested', order],
      ['lock.contended', { ...order, where: 'process' }],
      ['lock.released', { ...order, holdMs: aTime, outcome: 'committed' }],
      ['lock.acquired', { ...order, waitMs: aTime, contended: true, attempt: 1 }],
      ['lock.released', { ...order, holdMs: aTime, outcome: 'committed' }],
    ])
  })

  test.each(['read committed', 'serializable'] as const)('report contention at the server, %s', async (isolation) => {
    const [holder, waiter] = [bench.open(driver), bench.open(driver)]
    const leave = signal()
    const first = holder.lockstep.transaction({ lock: 'Order:1' }, () => leave.given)
    await expect.poll(names).toContain('lock.acquired')
    const second = waiter.lockstep.transaction({ lock: 'Order:1', isolation }, async () => undefined)
    await bench.waiters(1)
    leave.give()
    await Promise.all([first, second])
    const told = heard.slice(2).filter(([name]) => name !== 'lock.released')
    expect(told).toEqual([
      ['lock.requested', order],
      ['lock.contended', { ...order, where: 'server' }],
      ['lock.acquired', { ...order, waitMs: aTime, contended: true, attempt: 1 }],
    ])
    expect(names().filter((name) => name === 'lock.released')).toHaveLength(2)
  })

  test('report timeouts in this process and at the server', async () => {
    const [holder, other] = [bench.open(driver), bench.open(driver)]
    const leave = signal()
    let pid = 0
    const first = holder.lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      pid = await pidOf(tx)
      await leave.given
    })
    await expect.poll(() => pid).toBeGreaterThan(0)
    heard = []
    await failureOf(holder.lockstep.transaction({ lock: 'Order:1', waitMs: 30 }, async () => undefined))
    const here = {
      noWait: false,
      waitedMs: aTime,
      waitedFor: 'process',
      holders: [{ where: 'process', key: 'Order:1' }],
    }
    expect(heard).toEqual([
      ['lock.requested', order],
      ['lock.contended', { ...order, where: 'process' }],
      ['lock.timedOut', { ...order, ...here }],
    ])
    // Warm, so that the time is spent at the server and not on connecting. Long, because a late answer counts as a lost connection.
    await other.lockstep.transaction({}, async () => undefined)
    heard = []
    await failureOf(other.lockstep.transaction({ lock: 'Order:1', waitMs: 2000 }, async () => undefined))
    const there = { where: 'server', key: 'Order:1', pid, state: 'idle in transaction', openForMs: aTime }
    expect(names()).toEqual(['lock.requested', 'lock.contended', 'lock.timedOut'])
    expect(heard.at(-1)?.[1]).toMatchObject({
      ...order,
      noWait: false,
      waitedMs: aTime,
      waitedFor: 'server',
      holders: [there],
    })
    leave.give()
    await first
  })

  test.each([{ noWait: true }, { waitMs: 0 }])('report a lock that is only tried, with %j', async (how) => {
    const [holder, other] = [bench.open(driver), bench.open(driver)]
    const leave = signal()
    const first = holder.lockstep.transaction({ lock: 'Order:1' }, () => leave.given)
    await expect.poll(names).toContain('lock.acquired')
    for (const [{ lockstep }, where] of [
      [holder, 'process'],
      [other, 'server'],
    ] as const) {
      heard = []
      await failureOf(lockstep.transaction({ lock: 'Order:1', ...how }, async () => undefined))
      expect(heard.at(-1)).toMatchObject(['lock.timedOut', { ...order, noWait: true, waitedFor: where }])
    }
    leave.give()
    await first
  })

  test('report a call that a full queue refuses', async () => {
    const { lockstep } = bench.open(driver, { maxQueue: 1 })
    const leave = signal()
    const first = lockstep.transaction({ lock: 'Order:1' }, () => leave.given)
    await expect.poll(names).toContain('lock.acquired')
    const second = lockstep.transaction({ lock: 'Order:1' }, async () => 'served')
    await expect.poll(names).toContain('lock.contended')
    heard = []
    const refused = await failureOf(lockstep.transaction({ lock: 'Order:1' }, async () => 'never'))
    expect(refused).toMatchObject({ code: 'LOCKSTEP_QUEUE_FULL', waiting: 1, keys: ['Order:1'] })
    expect(heard).toEqual([
      ['lock.requested', order],
      ['lock.contended', { ...order, where: 'process' }],
      ['lock.refused', { ...order, waiting: 1 }],
    ])
    leave.give()
    await first
    expect(await second).toBe('served')
  })

  test('report aborts in this process and at the server', async () => {
    const [holder, other] = [bench.open(driver), bench.open(driver)]
    await other.lockstep.transaction({}, async () => undefined)
    const leave = signal()
    const first = holder.lockstep.transaction({ lock: 'Order:1' }, () => leave.given)
    await expect.poll(names).toContain('lock.acquired')
    for (const { lockstep } of [holder, other]) {
      heard = []
      const controller = new AbortController()
      const call = failureOf(
        lockstep.transaction({ lock: 'Order:1', signal: controller.signal }, async () => undefined),
      )
      await expect.poll(names).toContain('lock.contended')
      if (lockstep === other.lockstep) await bench.waiters(1)
      controller.abort()
      expect(await call).toMatchObject({ code: 'LOCKSTEP_LOCK_ABORTED' })
      const where = lockstep === holder.lockstep ? 'process' : 'server'
      expect(heard).toEqual([
        ['lock.requested', order],
        ['lock.contended', { ...order, where }],
        ['lock.abandoned', { ...order, waitedMs: aTime }],
      ])
    }
    leave.give()
    await first
  })

  test('report a wait that close() ends as an abort', async () => {
    const { lockstep } = bench.open(driver)
    const leave = signal()
    const first = lockstep.transaction({ lock: 'Order:1' }, () => leave.given)
    await expect.poll(names).toContain('lock.acquired')
    heard = []
    const second = failureOf(lockstep.transaction({ lock: 'Order:1' }, async () => undefined))
    const closed = lockstep.close()
    await second
    expect(names()).toEqual(['lock.requested', 'lock.contended', 'lock.abandoned'])
    leave.give()
    await Promise.all([first, closed])
  })

  test('report a retry', async () => {
    const { lockstep } = bench.open(driver)
    const conflict = Object.assign(new Error('could not serialize'), { code: '40001' })
    let runs = 0
    await lockstep.transaction({ lock: 'Order:1' }, async () => {
      if (++runs === 1) throw conflict
    })
    expect(heard).toEqual([
      ['lock.requested', order],
      ['lock.acquired', { ...order, waitMs: aTime, contended: false, attempt: 1 }],
      ['lock.released', { ...order, holdMs: aTime, outcome: 'rolledBack' }],
      [
        'transaction.retried',
        { schema: 'lockstep', keys: ['Order:1'], attempt: 1, delayMs: aTime, reason: '40001', error: conflict },
      ],
      ['lock.requested', order],
      ['lock.acquired', { ...order, waitMs: aTime, contended: false, attempt: 2 }],
      ['lock.released', { ...order, holdMs: aTime, outcome: 'committed' }],
    ])
  })

  test.each([
    ['the server had committed', 'server', 'committed'],
    ['it never arrived', 'client', 'rolledBack'],
  ] as const)('report a COMMIT whose answer was lost: %s', async (_, side, outcome) => {
    const { proxy, lockstep } = await bench.proxied(driver)
    await lockstep.transaction({}, async () => undefined)
    const cut = (chunk: Buffer): 'cut-before' | 'forward' => {
      if (!chunk.includes('COMMIT\0')) return 'forward'
      proxy.onClientData(undefined)
      proxy.onServerData(undefined)
      return 'cut-before'
    }
    let xid = ''
    const value = await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
      await note(tx, 'written once')
      if (xid !== '') return 'second'
      const { rows } = await tx.query<{ xid: string }>('SELECT pg_current_xact_id()::text AS xid')
      xid = rows[0]?.xid ?? ''
      if (side === 'client') proxy.onClientData(cut)
      else proxy.onServerData(cut)
      return 'first'
    })
    expect(value).toBe(outcome === 'committed' ? 'first' : 'second')
    expect(await bench.notes()).toEqual(['written once'])
    expect(heard.slice(0, 4)).toEqual([
      ['lock.requested', order],
      ['lock.acquired', { ...order, waitMs: aTime, contended: false, attempt: 1 }],
      ['lock.released', { ...order, holdMs: aTime, outcome: 'unknown' }],
      ['commit.resolved', { schema: 'lockstep', keys: ['Order:1'], xid, outcome, tookMs: aTime }],
    ])
    const again: EventName[] = ['transaction.retried', 'lock.requested', 'lock.acquired', 'lock.released']
    expect(names().slice(4)).toEqual(outcome === 'committed' ? [] : again)
  })
})

describe('the channels', () => {
  test('have the names of their events, and know that there are listeners', () => {
    for (const [name, channel] of Object.entries(events)) {
      expect(channel.name).toBe(`lockstep:${name}`)
      expect(channel.hasSubscribers).toBe(true)
    }
  })

  test('keep other listeners when one stops', () => {
    const seen: unknown[] = []
    const listener = (message: unknown): void => void seen.push(message)
    const [stop, other] = [on('migration.applied', listener), on('migration.applied', listener)]
    stop()
    stop()
    events['migration.applied'].publish({ schema: 'x', version: 1, name: 'a' })
    other()
    events['migration.applied'].publish({ schema: 'x', version: 2, name: 'b' })
    expect(seen).toEqual([{ schema: 'x', version: 1, name: 'a' }])
  })
})

describe('docs/reference/observe.md', () => {
  const page = readFileSync(new URL('../../docs/reference/observe.md', import.meta.url), 'utf8')
  const rows = [...page.matchAll(/^\| `([^`]+)` \| `(lockstep:[^`]+)` \|(.*)\|(.*)\|$/gm)]

  test('lists every event with its channel', () => {
    expect(rows.map(([, name]) => name)).toEqual(Object.keys(events))
    expect(rows.map(([, , channel]) => channel)).toEqual(Object.values(events).map((channel) => channel.name))
  })

  test('lists the fields that events.ts declares', () => {
    const source = readFileSync(new URL('../observe/events.ts', import.meta.url), 'utf8')
    const messageOf = new Map(
      [...source.matchAll(/eventChannel<(\w+)>\('([\w.]+)'\)/g)].map(([, type, name]) => [name, type]),
    )
    for (const [, name, , , cells] of rows) {
      const documented = [...(cells ?? '').matchAll(/`(\w+)`/g)].map(([, field]) => field)
      const declared = fieldsOf(source, messageOf.get(name) ?? '').filter((field) => !/^(schema|keys)$/.test(field))
      expect([name, documented]).toEqual([name, declared])
    }
  })

  test('explains each field', () => {
    const explained =
      page
        .split('## The fields')[1]
        ?.split('\n')
        .filter((line) => line.startsWith('| `')) ?? []
    const fields = rows.flatMap(([, , , , cells]) => [...(cells ?? '').matchAll(/`\w+`/g)].map(([cell]) => cell))
    expect(fields.filter((field) => !explained.some((line) => line.split(' | ')[0]?.includes(field)))).toEqual([])
  })
})

function fieldsOf(source: string, type: string): string[] {
  const [, parent, body] = new RegExp(`interface ${type} (?:extends (\\w+) )?\\{\\n([^]*?)^\\}`, 'm').exec(source) ?? []
  const own = [...(body ?? '').matchAll(/^ {2}readonly (\w+):/gm)].map(([, field]) => field ?? '')
  return parent === undefined ? own : [...fieldsOf(source, parent), ...own]
}
