import { describe, expect, test } from 'vitest'
import { copyForRestore } from '../../tools/server/standby.ts'
import { type OpenServer, serverBench } from '../../tools/server/testing/serverBench.ts'
import { HistoryDivergedError, type Lockstep, type OutboxEvent, type Sink } from '../index.ts'
import { type EventMessage, on } from '../observe/index.ts'

/** Asynchronous replication, and restores to a point in time: what was delivered and is lost gets its numbers again. */

const bench = serverBench()

async function enqueue(lockstep: Lockstep, key: string): Promise<void> {
  await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 't', key, payload: {} }))
}

/** Delivers to a consumer, which judges by its inbox, and keeps what came. */
function dispatch(
  producer: Lockstep,
  consumer: Lockstep,
): { sent: OutboxEvent[]; verdicts: string[]; ended: Promise<unknown> } {
  const sent: OutboxEvent[] = []
  const verdicts: string[] = []
  const inbox = consumer.inbox.consumer('reader')
  const sink: Sink = {
    name: 'recording',
    async send(events) {
      for (const event of events) {
        sent.push(event)
        const verdict = await inbox.handle(event, {}, async () => undefined).catch((error: unknown) => error)
        verdicts.push(verdict instanceof Error ? verdict.name : String(verdict))
      }
      return events.map(() => 'sent' as const)
    },
  }
  const stopping = new AbortController()
  const running = producer.outbox.dispatcher({ sink, shards: 1, ttlMs: 2000, retainMs: false })
  const ended = running.run({ signal: stopping.signal }).catch((error: unknown) => error)
  bench.cleanUp(async () => {
    stopping.abort()
    await ended
  })
  return { sent, verdicts, ended }
}

const names = (events: readonly OutboxEvent[]): string[] => events.map(({ key, seq }) => `${key}#${seq}`)

describe('events that were delivered and are lost', () => {
  test('are reported at the first number that comes again, after a failover to a standby that is behind', async () => {
    const primary = await bench.start()
    const before = bench.open(primary.url())
    await before.lockstep.migrate({ maxTtlMs: 2000 })
    const target = bench.open((await bench.start()).url())
    await target.lockstep.migrate()
    const standby = await bench.standby(primary)
    const address = await bench.address(primary)
    const changes: EventMessage<'outbox.historyChanged'>[] = []
    bench.cleanUp(on('outbox.historyChanged', (change) => void changes.push(change)))
    const run = dispatch(bench.open(address.url).lockstep, target.lockstep)
    for (const key of ['a', 'a', 'b']) await enqueue(before.lockstep, key)
    await expect.poll(() => names(run.sent)).toEqual(['a#1', 'a#2', 'b#1'])
    await bench.caughtUp(primary)
    await bench.cutOff(standby)
    for (let n = 0; n < 4; n++) await enqueue(before.lockstep, 'a')
    await expect.poll(() => run.sent.at(-1)?.seq).toBe(6)
    expect(new Set(run.verdicts)).toEqual(new Set(['first']))
    await primary.crash()
    await standby.promote()
    const after = bench.open(standby.server.url())
    // In SQL, before anything of the library has come to the new primary: no event is older than its epoch.
    await after.pool.query(`SELECT lockstep.enqueue('t', 'a', '{}'), lockstep.enqueue('t', 'b', '{}')`)
    address.leadTo(standby.server)
    const again = (): { name: string; verdict: string | undefined }[] =>
      run.sent
        .map(({ key, seq, generation }, place) => ({ name: `${key}#${seq}`, verdict: run.verdicts[place], generation }))
        .filter(({ generation }) => generation === 2)
        .map(({ name, verdict }) => ({ name, verdict }))
    // #3 of 6: below the last number that was accepted, and of a later generation. b has lost nothing.
    await expect.poll(again).toEqual([
      { name: 'a#3', verdict: HistoryDivergedError.name },
      { name: 'b#2', verdict: 'first' },
    ])
    expect(changes).toEqual([
      expect.objectContaining({
        from: expect.objectContaining({ generation: 1 }),
        to: expect.objectContaining({ generation: 2, timeline: 2 }),
      }),
    ])
    expect(new Set(run.sent.map(({ history }) => history)).size).toBe(2)
  })

  test('are reported after a restore to a point in time, to a new dispatcher', async () => {
    const primary = await bench.start()
    const before = bench.open(primary.url())
    await before.lockstep.migrate({ maxTtlMs: 2000 })
    const target = bench.open((await bench.start()).url())
    await target.lockstep.migrate()
    const run = dispatch(before.lockstep, target.lockstep)
    await enqueue(before.lockstep, 'a')
    const copy = await copyForRestore(primary)
    await before.pool.query(`SELECT pg_create_restore_point('here')`)
    for (let n = 0; n < 3; n++) await enqueue(before.lockstep, 'a')
    await expect.poll(() => names(run.sent)).toEqual(['a#1', 'a#2', 'a#3', 'a#4'])
    await before.pool.query('SELECT pg_switch_wal()')
    const restored = await copy.restore('here')
    bench.cleanUp(() => restored.stop('immediate'))
    const after = bench.open(restored.server.url())
    await enqueue(after.lockstep, 'a')
    const again = dispatch(after.lockstep, target.lockstep)
    await expect.poll(() => names(again.sent).includes('a#2')).toBe(true)
    await expect.poll(() => again.verdicts.at(-1)).toBe(HistoryDivergedError.name)
    const { rows } = await after.pool.query(`SELECT verb FROM lockstep.outbox_audit`)
    expect(rows).toEqual([{ verb: 'timeline 2' }])
  })
})

describe('two standbys of one primary that are both promoted', () => {
  test('differ only in their history, and the inbox reports a number that both assigned, if it is the last one that was accepted', async () => {
    const primary = await bench.start()
    const before = bench.open(primary.url())
    await before.lockstep.migrate({ maxTtlMs: 2000 })
    const target = bench.open((await bench.start()).url())
    await target.lockstep.migrate()
    for (const key of ['a', 'a', 'b', 'c']) await enqueue(before.lockstep, key)
    const standbys = [await bench.standby(primary), await bench.standby(primary)]
    const replayed = 'SELECT FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_flush_lsn()'
    await expect.poll(async () => (await before.pool.query(replayed)).rowCount).toBe(2)
    await primary.crash()
    for (const standby of standbys) await standby.promote()
    const [one, other] = standbys.map(({ server }) => bench.open(server.url())) as [OpenServer, OpenServer]
    // Not the same number of events, as two servers that both run would have it.
    for (const key of ['a', 'c', 'c']) await enqueue(one.lockstep, key)
    for (const key of ['a', 'b', 'c']) await enqueue(other.lockstep, key)

    const first = dispatch(one.lockstep, target.lockstep)
    await expect.poll(() => first.verdicts).toHaveLength(7)
    expect(new Set(first.verdicts)).toEqual(new Set(['first']))
    const second = dispatch(other.lockstep, target.lockstep)
    await expect.poll(() => second.verdicts).toHaveLength(7)
    const verdicts = Object.fromEntries(names(second.sent).map((name, place) => [name, second.verdicts[place]]))
    expect(verdicts).toEqual({
      // From before the promotions: the same events, with the same ids.
      'a#1': 'duplicate',
      'a#2': 'duplicate',
      'b#1': 'duplicate',
      'c#1': 'duplicate',
      'a#3': HistoryDivergedError.name,
      // The other server has no such event.
      'b#2': 'first',
      // The inbox keeps the id of the last number, which is c#3. So this one looks like an event that was accepted.
      'c#2': 'duplicate',
    })

    const identity = `SELECT s.system_identifier::text AS system, c.timeline_id AS timeline FROM pg_control_system() s, pg_control_checkpoint() c`
    const [ofOne, ofOther] = await Promise.all(
      [one, other].map(async ({ pool }) => (await pool.query('CHECKPOINT'), (await pool.query(identity)).rows[0])),
    )
    expect(ofOne).toMatchObject({ timeline: 2 })
    expect(ofOther).toEqual(ofOne)
    const both = [first, second].map(({ sent }) => sent.filter(({ key, seq }) => key === 'a' && seq === 3))
    expect(both.map((events) => events.map(({ generation }) => generation))).toEqual([[2], [2]])
    const histories = [first, second].map(({ sent }) => new Set(sent.map(({ history }) => history)))
    expect(histories.map(({ size }) => size)).toEqual([1, 1])
    expect(histories[0]).not.toEqual(histories[1])
  })
})
