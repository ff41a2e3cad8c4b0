import { Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { median } from './compare.ts'
import { createDatabase, HOLD_SNAPSHOT } from './outbox.sql.ts'
import { GatedDispatcher } from './outboxDrain.ts'
import { CONNECTIONS, eventOf, fill, onAllConnections } from './outboxEvents.ts'

/** What an old snapshot costs, as ratios of rates to those of a database without. */
export interface Horizon {
  readonly enqueue: { readonly held: number; readonly free: number; readonly ratio: number }
  readonly drain: { readonly held: number; readonly free: number; readonly ratio: number }
}

export interface HorizonSize {
  /** How long the snapshot is held. */
  readonly ms: number
  /** How many single events are enqueued at a time, and how many more are put there to be drained. */
  readonly singles: number
  readonly many: number
}

interface Rates {
  readonly enqueue: number
  readonly drain: number
}

/**
 * Two databases of one server, and in one of them somebody holds a snapshot: that holds up cleaning there and only there. They are
 * under load in turns, so that what slows the machine down slows both. What an old snapshot costs grows with its age: only the
 * second half counts.
 */
export async function measureHorizon(
  server: { url(database: string): string },
  admin: pg.Pool,
  size: HorizonSize,
  tell: (text: string) => void,
): Promise<Horizon> {
  const [held, free] = await Promise.all(['held', 'free'].map((name) => openSide(server, admin, name)))
  if (held === undefined || free === undefined) throw new Error('two sides are needed')
  const holder = new pg.Client(held.url)
  try {
    await holder.connect()
    for (const side of [held, free]) await side.play(size)
    await holder.query(HOLD_SNAPSHOT)
    const rounds: { held: Rates; free: Rates; age: number }[] = []
    const startedAt = performance.now()
    for (let age = 0; age < size.ms || rounds.length < 2; age = performance.now() - startedAt) {
      tell(`outbox: a snapshot of ${Math.round(age / 1000)} s`)
      const heldFirst = rounds.length % 2 === 0
      const first = await (heldFirst ? held : free).play(size)
      const second = await (heldFirst ? free : held).play(size)
      rounds.push(heldFirst ? { held: first, free: second, age } : { held: second, free: first, age })
    }
    const late = rounds.filter(({ age }) => age >= size.ms / 2)
    const counted = late.length > 0 ? late : rounds
    const over = (what: keyof Rates): Horizon['enqueue'] => ({
      held: median(counted.map((round) => round.held[what])),
      free: median(counted.map((round) => round.free[what])),
      ratio: median(counted.map((round) => round.held[what] / round.free[what])),
    })
    return { enqueue: over('enqueue'), drain: over('drain') }
  } finally {
    await holder.end()
    await Promise.all([held.close(), free.close()])
  }
}

interface Side {
  readonly url: string
  /** Enqueues single events, then drains them together with many more. */
  play(size: HorizonSize): Promise<Rates>
  close(): Promise<void>
}

async function openSide(server: { url(database: string): string }, admin: pg.Pool, name: string): Promise<Side> {
  await admin.query(createDatabase(name))
  const url = server.url(name)
  // Apart from each other: who enqueues does not wake who delivers.
  const [writing, reading] = [
    new pg.Pool({ connectionString: url, max: CONNECTIONS }),
    new pg.Pool({ connectionString: url, max: 4 }),
  ]
  const [producer, consumer] = [new Lockstep(writing), new Lockstep(reading)] as unknown as [Lockstep, Lockstep]
  await producer.migrate()
  const dispatcher = new GatedDispatcher(consumer)
  let enqueued = 0
  return {
    url,
    async play({ singles, many }) {
      const startedAt = performance.now()
      await onAllConnections((number) => producer.transaction({}, (tx) => tx.enqueue(eventOf(number))))(singles)
      const enqueuedAt = performance.now()
      enqueued += singles + (await fill(producer, many))
      const before = dispatcher.delivered
      const openedAt = performance.now()
      await dispatcher.deliverUpTo(enqueued)
      return {
        enqueue: (singles / (enqueuedAt - startedAt)) * 1000,
        drain: ((dispatcher.delivered - before) / (performance.now() - openedAt)) * 1000,
      }
    },
    async close() {
      await dispatcher.stop()
      await Promise.all([producer.close(), consumer.close()])
      await Promise.all([writing.end(), reading.end()])
    },
  }
}
