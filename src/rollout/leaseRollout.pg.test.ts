import { describe, expect, test } from 'vitest'
import { leaseBench } from '../../tools/server/testing/leaseBench.ts'
import { DRIVERS, failureOf, signal } from '../../tools/server/testing/workbench.ts'
import { exclusive, fetchHandler } from '../http/index.ts'
import { InvalidOptionError, type Key, LeaseHeldError, LeaseLostError, type Lockstep } from '../index.ts'
import { key, lockId } from '../locks/index.ts'
import { type EventMessage, type EventName, on } from '../observe/index.ts'
import { decide } from './rollout.ts'

const bench = await leaseBench()

let names = 0
const fresh = (): Key => key`Instance:${++names}`
const nothing = (): Promise<void> => Promise.resolve()

function heard<Name extends EventName>(name: Name): EventMessage<Name>[] {
  const events: EventMessage<Name>[] = []
  bench.cleanUp(on(name, (event) => events.push(event)))
  return events
}

/** Whether a second caller is kept out while a first one is there. */
async function excludes(one: Lockstep, other: Lockstep, name: Key): Promise<boolean> {
  return one.lease(name, {}, async () => {
    const second = await other.leases.tryAcquire(name)
    await second?.release()
    return second === undefined
  })
}

describe.each(DRIVERS)('rollout of leases, %s', (driver) => {
  test('sends no query with off, and ends no lease', async () => {
    const { lockstep } = bench.open(driver, { rollout: 'off' })
    const name = fresh()
    const [one, other] = await Promise.all([lockstep.leases.acquire(name), lockstep.leases.acquire(name)])
    expect([one.mode, one.fence, other.mode]).toEqual(['off', 0n, 'off'])
    expect(await lockstep.leases.list()).toEqual([])
    for (const lease of [one, other]) {
      await lease.transaction({}, async (tx) => {
        await tx.query('INSERT INTO notes VALUES (gen_random_uuid())')
      })
      await lockstep.transaction({}, (tx) => lease.guard(tx))
      lease.assertHeld()
      expect(lease.trustedMs).toBeGreaterThan(0)
    }
    await other.release()
    expect(() => other.assertHeld()).toThrow(LeaseLostError)
    expect(await failureOf(other.transaction({}, nothing))).toBeInstanceOf(LeaseLostError)
    expect(one.signal.aborted).toBe(false)
    expect(await failureOf(one.guard({} as never))).toBeInstanceOf(InvalidOptionError)
    await one.release()
  })

  test('blocks no caller with observe, and reports the wait or the refusal that would have been', async () => {
    const events = heard('lease.wouldWait')
    const [one, other] = [bench.open(driver, { rollout: 'observe' }), bench.open(driver, { rollout: 'observe' })]
    const name = fresh()
    // Warm: a mark that takes too long is done without.
    await Promise.all([one, other].map(({ lockstep }) => lockstep.leases.inspect(name)))
    const first = await one.lockstep.leases.acquire(name, { holder: 'first' })
    const refused = await other.lockstep.leases.acquire(name, { holder: 'second' })
    await expect.poll(() => events).toMatchObject([{ key: name, holder: 'second', heldBy: 'first', granted: false }])
    expect(events[0]?.waitMs).toBe(0)
    await refused.release()
    const waits = await other.lockstep.leases.acquire(name, { holder: 'third', waitMs: 9000 })
    expect([first, refused, waits].map(({ mode }) => mode)).toEqual(['observe', 'observe', 'observe'])
    expect(first.fence).toBeGreaterThan(0n)
    expect(refused.fence).toBeGreaterThan(first.fence)
    expect(waits.fence).toBeGreaterThan(refused.fence)
    expect((await one.lockstep.leases.inspect(`Observed:${name}`)).holders.map(({ holder }) => holder)).toEqual(
      expect.arrayContaining(['first', 'third']),
    )
    await first.release()
    await expect.poll(() => events.slice(1)).toMatchObject([{ holder: 'third', heldBy: 'first', granted: true }])
    await waits.release()
    // No holder is left: a caller that arrives now would not have waited.
    await one.lockstep.lease(name, {}, nothing)
    expect(events).toHaveLength(2)
    expect(await one.lockstep.leases.list({ prefix: 'Observed:' })).toEqual([])
  })

  test('counts permits, and a holder of a process that does not observe', async () => {
    const events = heard('lease.wouldWait')
    const { lockstep } = bench.open(driver, { rollout: 'observe' })
    const name = fresh()
    const options = { permits: 2 }
    const held = await bench.open(driver).lockstep.leases.acquire(name, options)
    const second = await lockstep.leases.acquire(name, { ...options, holder: 'second' })
    const third = await lockstep.leases.acquire(name, { ...options, holder: 'third' })
    await expect.poll(() => events).toMatchObject([{ holder: 'third', granted: false }])
    await Promise.all([held, second, third].map((lease) => lease.release()))
  })

  test('keeps an observed lease whatever happens to its mark', async () => {
    const { lockstep } = bench.open(driver, { rollout: 'observe' })
    const name = fresh()
    const lost = signal()
    bench.cleanUp(on('lease.lost', (event) => event.key === `Observed:${name}` && lost.give()))
    await lockstep.lease(name, { ttlMs: 300 }, async (lease) => {
      await bench.expire(`Observed:${name}`)
      await lost.given
      expect(lease.signal.aborted).toBe(false)
      lease.assertHeld()
      await lease.transaction({}, async (tx) => void (await tx.query('INSERT INTO notes VALUES (gen_random_uuid())')))
    })
  })

  test('decides by prefix and by percent, a lease as a lock of the same key', async () => {
    const options = { rollout: { 'Instance:': { percent: 50 }, 'Order:': 'off' } } as const
    const [one, other] = [bench.open(driver, options).lockstep, bench.open(driver, options).lockstep]
    const sides = new Set<string>()
    while (sides.size < 2) {
      const name = fresh()
      const side = decide({ percent: 50 }, { id: lockId('lockstep', 'lock', name) })
      if (sides.has(side)) continue
      sides.add(side)
      expect(await excludes(one, other, name), `${name} is ${side}`).toBe(side === 'on')
    }
    expect(await excludes(one, other, key`Order:${1}`)).toBe(false)
    expect(await excludes(one, other, key`Other:${1}`)).toBe(true)
  })

  test('follows rules in the database, and leaves a lease that is held as it is', async () => {
    const [one, other] = [bench.open(driver, { rollout: 'database' }), bench.open(driver, { rollout: 'database' })]
    const name = key`Switched:${1}`
    const held = await one.lockstep.leases.acquire(name)
    expect(held.mode).toBe('on')
    await one.lockstep.rollout.set('Switched:', 'off')
    await expect.poll(() => excludes(one.lockstep, other.lockstep, name)).toBe(false)
    expect(await bench.isHeld(name)).toBe(true)
    await held.transaction({}, nothing)
    await held.release()
    await one.lockstep.rollout.set('Switched:', 'on')
    await expect.poll(() => excludes(one.lockstep, other.lockstep, name)).toBe(true)
    await one.lockstep.rollout.unset('Switched:')
  })

  test('elects one leader whatever the rollout says', async () => {
    const options = { rollout: 'off' } as const
    const [one, other] = [bench.open(driver, options).lockstep, bench.open(driver, options).lockstep]
    const name = fresh()
    let leaders = 0
    const stop = new AbortController()
    await one.leader(name, {}, async () => {
      const candidate = other.leader(name, { signal: stop.signal }, () => Promise.resolve(leaders++))
      await bench.queued(name, 1)
      stop.abort()
      expect(await candidate).toBeUndefined()
    })
    expect(leaders).toBe(0)
  })

  test('holds the shards of a dispatcher whatever the rollout says', async () => {
    const { lockstep } = bench.open(driver, { rollout: 'off' })
    const stop = new AbortController()
    const name = `rollout-${driver.replaceAll('.', '-')}`
    const running = lockstep.outbox.dispatcher({ name, shards: 1, sink: () => undefined }).run({ signal: stop.signal })
    await expect.poll(() => bench.isHeld(`Outbox:${name}:shard:0`)).toBe(true)
    stop.abort()
    await running
  })

  test('runs an observed caller without a mark when no connection is free', async () => {
    const { lockstep } = bench.open(driver, { rollout: 'observe', max: 1 })
    const name = fresh()
    await lockstep.transaction({}, async () => {
      // The one connection is this transaction's until the end.
      const ran = await lockstep.detached(() => lockstep.lease(name, {}, (lease) => Promise.resolve(lease)))
      expect([ran.mode, ran.fence]).toEqual(['observe', 0n])
    })
  })

  test('refuses a rule for the shards of dispatchers', async () => {
    const rollout = { 'Outbox:': 'off' } as const
    expect(() => bench.open(driver, { rollout })).toThrow(InvalidOptionError)
    const refused = failureOf(bench.open(driver).lockstep.rollout.set('Outbox:default:', 'off'))
    expect(await refused).toBeInstanceOf(InvalidOptionError)
  })

  test.each(['off', 'observe', 'on'] as const)('lets requests in at once unless on: exclusive, %s', async (mode) => {
    const { lockstep } = bench.open(driver, { rollout: mode })
    const name = fresh()
    const oneAtATime = exclusive(lockstep, { key: () => name })
    const [inside, goOn] = [signal(), signal()]
    let first = true
    const handler = fetchHandler(oneAtATime, async (_, lease) => {
      if (first) {
        first = false
        inside.give()
        await goOn.given
      }
      return new Response(lease.mode)
    })
    const one = handler(new Request('http://localhost/', { method: 'POST' }))
    await inside.given
    const other = await handler(new Request('http://localhost/', { method: 'POST' }))
    expect(other.status).toBe(mode === 'on' ? 409 : 200)
    goOn.give()
    expect(await (await one).text()).toBe(mode)
  })

  test('ends what it let in when the Lockstep is closed', async () => {
    const { lockstep } = bench.open(driver, { rollout: 'observe' })
    const lease = await lockstep.leases.acquire(fresh())
    await lockstep.close()
    expect(lease.signal.reason).toMatchObject({ reason: 'closed' })
    expect(() => lease.assertHeld()).toThrow(LeaseLostError)
    expect(await bench.isHeld(`Observed:${lease.key}`)).toBe(false)
  })
})

describe.each(DRIVERS)('rollout of onceExternal, %s', (driver) => {
  const create = (lockstep: Lockstep, symbol: string, act: () => Promise<void>): Promise<unknown> =>
    lockstep.onceExternal<string, string, void>(key`Position:${symbol}`, {
      // Longer than a test: a caller that waits is seen.
      waitMs: 300_000,
      find: async (tx) => {
        const { rows } = await tx.query<{ done: boolean }>('SELECT done FROM positions WHERE symbol = $1', [symbol])
        if (rows[0] === undefined) return undefined
        return rows[0].done ? { done: symbol } : { pending: symbol }
      },
      begin: async (tx) => {
        await tx.query('INSERT INTO positions (symbol) VALUES ($1)', [symbol])
        return symbol
      },
      act,
      finish: async (tx) => {
        await tx.query('UPDATE positions SET done = true WHERE symbol = $1', [symbol])
        return symbol
      },
    })

  test.each(['off', 'observe', 'on'] as const)(
    'lets callers of one process and of two create at once unless on: %s',
    async (mode) => {
      await bench.admin.query(
        'DROP TABLE IF EXISTS positions; CREATE TABLE positions (symbol text, done bool DEFAULT false)',
      )
      const events = heard('lease.wouldWait')
      const [one, other] = [
        bench.open(driver, { rollout: mode }).lockstep,
        bench.open(driver, { rollout: mode }).lockstep,
      ]
      let acts = 0
      const [acting, goOn] = [signal(), signal()]
      const first = create(one, mode, async () => {
        acts++
        acting.give()
        await goOn.given
      })
      await acting.given
      // Of the same process it would wait in memory, of another one in the database.
      const second = create(mode === 'off' ? one : other, mode, () => Promise.resolve(void acts++))
      bench.cleanUp(() => goOn.give())
      if (mode === 'on') await bench.queued(key`Position:${mode}`, 1)
      await expect.poll(() => acts).toBe(mode === 'on' ? 1 : 2)
      if (mode !== 'on') await second
      goOn.give()
      await Promise.all([first, second])
      if (mode === 'observe')
        await expect.poll(() => events).toMatchObject([{ key: 'Position:observe', granted: true }])
    },
  )

  test('finds what another began when a unique index refuses the second beginning, and reports the duplicate', async () => {
    await bench.admin.query(
      'DROP TABLE IF EXISTS positions; CREATE TABLE positions (symbol text UNIQUE, done bool DEFAULT false)',
    )
    const duplicates = heard('rollout.duplicateFound')
    const { lockstep } = bench.open(driver, { rollout: 'off' })
    const symbol = 'BTC'
    let looks = 0
    const result = lockstep.onceExternal<string, string, void>(key`Position:${symbol}`, {
      find: async (tx) => {
        const { rows } = await tx.query('SELECT FROM positions WHERE symbol = $1', [symbol])
        // The other one comes between the look and the beginning.
        if (looks++ === 1) await bench.admin.query('INSERT INTO positions (symbol) VALUES ($1)', [symbol])
        return rows.length === 0 ? undefined : { pending: symbol }
      },
      begin: async (tx) => {
        await tx.query('INSERT INTO positions (symbol) VALUES ($1)', [symbol])
        return symbol
      },
      act: (_, { takenOver, fence }) => Promise.resolve(expect([takenOver, fence]).toEqual([true, 0n])),
      finish: () => Promise.resolve(symbol),
    })
    expect(await result).toEqual({ value: symbol, created: true })
    expect(duplicates).toMatchObject([{ key: 'Position:BTC', mode: 'off' }])
  })
})

describe.each(DRIVERS)('triggers of leases, %s', (driver) => {
  const pulled = (prefix: string): EventMessage<'rollout.switchedBack'>[] => {
    const events: EventMessage<'rollout.switchedBack'>[] = []
    bench.cleanUp(on('rollout.switchedBack', (event) => void (event.prefix === prefix && events.push(event))))
    return events
  }

  test('switches a prefix back after a long wait, once for all processes', async () => {
    const events = pulled('Waited:')
    const options = { rollout: 'database', switchBack: { waitMs: 50 } } as const
    const [one, other, third] = [1, 2, 3].map(() => bench.open(driver, options).lockstep) as [
      Lockstep,
      Lockstep,
      Lockstep,
    ]
    const name = key`Waited:${1}`
    await one.rollout.set('Waited:', 'on')
    // All three know the rule before the first of them switches it.
    for (const each of [one, other, third]) await each.lease(name, {}, nothing)
    const held = await one.leases.acquire(name)
    const waiting = [other, third].map((each) => each.lease(name, { waitMs: 60_000 }, nothing))
    await expect.poll(() => events).toMatchObject([{ prefix: 'Waited:', trigger: 'waitMs' }])
    await expect.poll(async () => (await other.leases.acquire(name)).mode).toBe('observe')
    await held.release()
    await Promise.all(waiting)
    expect(events).toHaveLength(1)
    expect(await one.rollout.list()).toMatchObject([{ prefix: 'Waited:', mode: 'observe', reason: events[0]?.reason }])
    await one.rollout.unset('Waited:')
  })

  test('counts refusals after a wait as failures, and not those of callers that do not wait', async () => {
    const events = pulled('Refused:')
    const { lockstep } = bench.open(driver, { rollout: 'on', switchBack: { failurePercent: 5 } })
    const name = key`Refused:${1}`
    const held = await bench.open(driver).lockstep.leases.acquire(name)
    for (let call = 0; call < 20; call++) expect(await lockstep.leases.tryAcquire(name)).toBeUndefined()
    expect(events).toEqual([])
    for (let call = 0; call < 2; call++)
      expect(await failureOf(lockstep.leases.acquire(name, { waitMs: 1 }))).toBeInstanceOf(LeaseHeldError)
    await expect.poll(() => events).toMatchObject([{ trigger: 'failurePercent' }])
    expect((await lockstep.leases.acquire(name)).mode).toBe('observe')
    await held.release()
  })

  test('switches back after a duplicate that is reported while the key is on', async () => {
    const events = pulled('Twice:')
    const duplicates = heard('rollout.duplicateFound')
    const { lockstep } = bench.open(driver, { rollout: { 'Seen:': 'observe' }, switchBack: { duplicates: 2 } })
    for (const name of [key`Seen:${1}`, key`Seen:${1}`, key`Twice:${1}`])
      lockstep.rollout.reportDuplicate(name, { detail: 'two rows' })
    expect(duplicates.map(({ mode }) => mode)).toEqual(['observe', 'observe', 'on'])
    expect(events).toEqual([])
    lockstep.rollout.reportDuplicate(key`Twice:${2}`)
    lockstep.rollout.reportDuplicate(key`Twice:${3}`)
    await expect.poll(() => events).toMatchObject([{ trigger: 'duplicates' }])
    expect((await lockstep.leases.acquire(key`Twice:${1}`)).mode).toBe('observe')
    expect(() => lockstep.rollout.reportDuplicate('nothing' as Key)).toThrow('nothing')
  })
})

describe.each(DRIVERS)('slow waits for leases, %s', (driver) => {
  test('reports a wait that continues, with the holder, and no caller that does not wait', async () => {
    const events = heard('lease.slow')
    const { lockstep } = bench.open(driver, { slowWaitMs: 40 })
    const name = fresh()
    const held = await lockstep.leases.acquire(name, { holder: 'first' })
    expect(await lockstep.leases.tryAcquire(name)).toBeUndefined()
    const waiting = lockstep.leases.acquire(name, { waitMs: 60_000, holder: 'second' })
    await expect.poll(() => events).toMatchObject([{ key: name, holder: 'second' }])
    expect(events[0]?.waitedMs).toBeGreaterThan(30)
    await held.release()
    await (await waiting).release()
  })

  test('does not report a leader that stands by', async () => {
    const events = heard('lease.slow')
    const { lockstep } = bench.open(driver, { slowWaitMs: 1 })
    const [name, slower] = [fresh(), fresh()]
    const stop = new AbortController()
    const held = await lockstep.leases.acquire(name)
    const candidate = lockstep.leader(name, { signal: stop.signal }, nothing)
    await bench.queued(name, 1)
    // A wait that began later is reported: the candidate's would have been.
    const other = await lockstep.leases.acquire(slower)
    const waiting = lockstep.leases.acquire(slower, { waitMs: 60_000 })
    await expect.poll(() => events.some((event) => event.key === slower)).toBe(true)
    expect(events.filter((event) => event.key === name)).toEqual([])
    stop.abort()
    await candidate
    await Promise.all([held.release(), other.release()])
    await (await waiting).release()
  })
})
