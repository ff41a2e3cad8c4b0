/**
 * A contender in a process of its own. It receives what to do and in which database, one thing after the other, and answers with what
 * came of it. Argument: its name.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { onAllConnections } from '../outboxEvents.ts'
import { type ContenderName, contenders } from './all.ts'
import type { Contender, Purpose, Take } from './contender.ts'

export type Task =
  | { readonly task: 'install'; readonly purpose: Purpose }
  | { readonly task: 'fill'; readonly count: number }
  | { readonly task: 'enqueue'; readonly count: number }
  | { readonly task: 'drain'; readonly upTo: number; readonly longestMs: number }
  /** The same with an effect of each event, and with the memory that it takes. */
  | { readonly task: 'consume'; readonly upTo: number; readonly longestMs: number }
  /** Enqueues at an even pace, and reports when each event was committed. */
  | { readonly task: 'produce'; readonly perSecond: number; readonly ms: number }
  /** Delivers, and reports what was delivered when it is asked the next time. */
  | { readonly task: 'listen' }
  | { readonly task: 'heard' }
  | { readonly task: 'hush' }
  | { readonly task: 'close' }

/** What was done in which time. `delivered` is with what came before the clock was started. */
export interface Done {
  readonly events: number
  readonly ms: number
  readonly delivered: number
}

export interface Consumed extends Done {
  /** The most that the process had while it consumed, above what it had before. */
  readonly grownMb: number
}

/** A moment, by the clock that all processes of a machine share. */
export type Arrival = readonly [number: number, at: number]

/** Of a backlog, so much comes before the clock starts; or as much as comes in a second. */
const WARM_UP_SHARE = 0.1
const WARM_UP_MS = 1000
const NOTHING_COMES_MS = 30_000

const now = (): number => performance.timeOrigin + performance.now()

async function enqueue(contender: Contender, count: number): Promise<Done> {
  const startedAt = performance.now()
  await onAllConnections((number) => contender.enqueue(number))(count)
  return { events: count, ms: performance.now() - startedAt, delivered: 0 }
}

/**
 * Delivers so many, or for so long from the first one on. The clock starts with a tenth of them, or a second after the first: what a start
 * costs is the same for a few events and for a million.
 */
async function drain(deliver: Contender['deliver'], upTo: number, longestMs: number): Promise<Done> {
  const warm = Math.max(1, Math.floor(upTo * WARM_UP_SHARE))
  let [delivered, from, startedAt, endedAt] = [0, 0, 0, 0]
  let reached: () => void = () => undefined
  const enough = new Promise<void>((resolve) => (reached = resolve))
  const start = (): void => {
    if (startedAt === 0) [from, startedAt] = [delivered, performance.now()]
  }
  const timers = [setTimeout(reached, NOTHING_COMES_MS)]
  const begunAt = performance.now()
  const stop = await deliver(() => {
    if (++delivered === 1) {
      clearTimeout(timers[0])
      timers.push(setTimeout(start, Math.min(WARM_UP_MS, longestMs / 4)), setTimeout(reached, longestMs))
    }
    // Behind the whole batch, of which this one is a part.
    if (delivered === warm) setImmediate(start)
    if (delivered === upTo) {
      endedAt = performance.now()
      reached()
    }
  })
  await enough
  const [end, counted] = endedAt === 0 ? [performance.now(), delivered] : [endedAt, upTo]
  for (const timer of timers) clearTimeout(timer)
  await stop()
  if (delivered === 0) throw new Error('nothing was delivered')
  // All in one batch: then the start is a part of it.
  if (startedAt === 0 || startedAt >= end || from >= counted) return { events: delivered, ms: end - begunAt, delivered }
  return { events: counted - from, ms: end - startedAt, delivered }
}

const LOOK_EVERY_MS = 10
const MB = 2 ** 20

function startConsuming(contender: Contender, take: Take): Promise<() => Promise<void>> {
  if (contender.consume === undefined) throw new Error('consumers are not compared with it')
  return contender.consume(() => take(NO_PAYLOAD))
}

async function consume(contender: Contender, upTo: number, longestMs: number): Promise<Consumed> {
  const before = process.memoryUsage.rss()
  let most = before
  const timer = setInterval(() => (most = Math.max(most, process.memoryUsage.rss())), LOOK_EVERY_MS)
  try {
    const done = await drain((take) => startConsuming(contender, take), upTo, longestMs)
    return { ...done, grownMb: (most - before) / MB }
  } finally {
    clearInterval(timer)
  }
}

const NO_PAYLOAD = { id: 0 }

/** One event a transaction. Who is late begins the next at once. */
async function produce(contender: Contender, perSecond: number, ms: number): Promise<Arrival[]> {
  const committed: Arrival[] = []
  const startedAt = performance.now()
  const count = Math.max(1, Math.round((perSecond * ms) / 1000))
  await onAllConnections(async (number) => {
    const waitMs = startedAt + (number * 1000) / perSecond - performance.now()
    if (waitMs > 0) await sleep(waitMs)
    await contender.enqueue(number)
    committed.push([number, now()])
  })(count)
  return committed
}

/** A task, and the database for it. */
export type TaskIn = Task & { readonly url: string }

function run(name: ContenderName): void {
  const opened = new Map<string, Promise<Contender>>()
  const open = (url: string): Promise<Contender> => {
    const contender = opened.get(url) ?? contenders[name].open(url)
    opened.set(url, contender)
    return contender
  }
  let arrived: Arrival[] = []
  let hush: (() => Promise<void>) | undefined
  const perform = async (task: TaskIn): Promise<unknown> => {
    if (task.task === 'close' && !opened.has(task.url)) return undefined
    const contender = await open(task.url)
    switch (task.task) {
      case 'install':
        return contender.install(task.purpose)
      case 'fill':
        return contender.fill(task.count)
      case 'enqueue':
        return enqueue(contender, task.count)
      case 'drain':
        return drain((take) => contender.deliver(take), task.upTo, task.longestMs)
      case 'consume':
        return consume(contender, task.upTo, task.longestMs)
      case 'produce':
        return produce(contender, task.perSecond, task.ms)
      case 'listen':
        return void (hush = await contender.deliver(({ id }) => void arrived.push([id, now()])))
      case 'heard':
        return arrived.splice(0)
      case 'hush':
        await hush?.()
        return void (arrived = [])
      case 'close':
        break
    }
    opened.delete(task.url)
    return contender.close()
  }
  process.on('message', (task: TaskIn) => {
    void perform(task).then(
      (answer) => process.send?.({ answer: answer ?? null }),
      (error: unknown) => process.send?.({ failed: error instanceof Error ? error.stack : String(error) }),
    )
  })
  process.send?.({ answer: 'ready' })
}

const [, program, name] = process.argv
if (program === import.meta.filename && name !== undefined) run(name as ContenderName)
