/**
 * Queues that have no formula: a load as arrivals by chance, with the processors of the database, the flush to disk that commits share, the lock of a
 * stream, the connections of each process, and dispatchers that look, deliver and look again. Discrete events, in simulated time. The chance is
 * drawn from a fixed seed: the same load has the same answer everywhere.
 *
 * What it leaves out: the network beyond the measured client, vacuum and checkpoints, and keys that are hotter than others.
 */
export interface SimulatedSystem {
  readonly cores: number
  readonly processes: number
  readonly connectionsPerProcess: number
  readonly dispatchers: number
  readonly keys: number
  /** The part of a transaction in which the server waits for the client. */
  readonly clientMs: number
  readonly flushMs: number
  readonly events: Arrivals
  readonly leases: Arrivals
  readonly transactions: Arrivals
  /** Cores that are busy whatever arrives. */
  readonly upkeepCores: number
  /** `waitMs`: from the commit to the server, and back to the sink. */
  readonly look: { readonly cpuMs: number; readonly waitMs: number; readonly pauseMs: number }
  readonly deliveryCpuMs: number
  /** What the sink takes for an event. */
  readonly sinkMs: number
}

export interface Arrivals {
  readonly perS: number
  readonly cpuMs: number
}

export interface Percentiles {
  readonly p50: number
  readonly p99: number
}

export interface Simulated {
  /** Of all cores. */
  readonly busy: number
  readonly flushesPerS: number
  /** From the call of a transaction to the answer of COMMIT. */
  readonly commitMs: Percentiles
  /** From the answer of COMMIT to the sink. */
  readonly deliveryMs: Percentiles
  readonly operations: number
  /** Whether queues grew to the end. */
  readonly overloaded: boolean
}

const MOST_OPERATIONS = 30_000
const LONGEST_MS = 10_000
const WARM_UP = 0.2
const SEED = 20_261_118
/** The length of one piece of upkeep. */
const UPKEEP_PIECE_MS = 1
/** What a dispatcher takes from its shards in one look. */
const BATCH = 8000
/** Unfinished operations, of those that arrived, that mean growing queues. */
const LEFT_AT_MOST = 0.05

export function simulate(system: SimulatedSystem, seed = SEED): Simulated {
  return new Simulation(system, seed).run()
}

class Simulation {
  readonly #system: SimulatedSystem
  readonly #random: () => number
  readonly #agenda = new Agenda()
  readonly #cpu: Processors
  readonly #disk: Disk
  readonly #pools: Pool[]
  readonly #streams = new Map<number, (() => void)[]>()
  readonly #readers: Reader[]
  readonly #commitMs: number[] = []
  readonly #deliveryMs: number[] = []
  readonly #fromMs: number
  readonly #untilMs: number
  #arrived = 0
  #committed = 0

  constructor(system: SimulatedSystem, seed: number) {
    this.#system = system
    this.#random = mulberry32(seed)
    const perS = system.events.perS + system.leases.perS + system.transactions.perS
    this.#untilMs = perS === 0 ? 0 : Math.min(LONGEST_MS, (MOST_OPERATIONS / perS) * 1000)
    this.#fromMs = this.#untilMs * WARM_UP
    this.#cpu = new Processors(this.#agenda, system.cores, this.#fromMs, this.#untilMs)
    this.#disk = new Disk(this.#agenda, system.flushMs)
    this.#pools = Array.from({ length: system.processes }, () => ({
      free: system.connectionsPerProcess,
      waiting: [],
    }))
    this.#readers = Array.from({ length: system.dispatchers }, () => ({
      pending: [],
      state: 'idle',
      lookedAt: -Infinity,
    }))
  }

  run(): Simulated {
    const { events, leases, transactions, upkeepCores } = this.#system
    this.#arrive(events, (done, cpuMs) => this.#inStream(done, cpuMs))
    for (const each of [leases, transactions])
      this.#arrive(each, (done, cpuMs) => this.#cpu.run(this.#chance(cpuMs), () => this.#disk.flush(done)))
    this.#upkeep(upkeepCores)
    this.#agenda.runUntil(this.#untilMs)
    const seconds = this.#untilMs / 1000
    const delivered = this.#deliveryMs.length
    const measured = events.perS * seconds * (1 - WARM_UP)
    return {
      busy: this.#cpu.busyShare,
      flushesPerS: seconds === 0 ? 0 : this.#disk.flushes / seconds,
      commitMs: percentilesOf(this.#commitMs),
      deliveryMs: percentilesOf(this.#deliveryMs),
      operations: this.#arrived,
      overloaded:
        this.#arrived - this.#committed > this.#arrived * LEFT_AT_MOST + 100 ||
        measured - delivered > measured * LEFT_AT_MOST + 100,
    }
  }

  /** Arrivals by chance, at an even rate. */
  #arrive({ perS, cpuMs }: Arrivals, commit: (done: () => void, cpuMs: number) => void): void {
    if (perS === 0) return
    const next = (): void => {
      this.#agenda.after(this.#chance(1000 / perS), () => {
        this.#begin(cpuMs, commit)
        next()
      })
    }
    next()
  }

  #begin(cpuMs: number, commit: (done: () => void, cpuMs: number) => void): void {
    const startedAt = this.#agenda.now
    this.#arrived++
    const pool = this.#pools[this.#below(this.#pools.length)] as Pool
    const work = (): void => {
      const done = (): void => {
        this.#committed++
        if (startedAt >= this.#fromMs) this.#commitMs.push(this.#agenda.now - startedAt)
        const waiting = pool.waiting.shift()
        if (waiting === undefined) pool.free++
        else waiting()
      }
      this.#agenda.after(this.#system.clientMs, () => commit(done, cpuMs))
    }
    if (pool.free === 0) pool.waiting.push(work)
    else {
      pool.free--
      work()
    }
  }

  /** The stream is locked until the commit is on disk; then a dispatcher can read the event. */
  #inStream(done: () => void, cpuMs: number): void {
    const key = this.#below(this.#system.keys)
    const locked = (): void =>
      this.#cpu.run(this.#chance(cpuMs), () =>
        this.#disk.flush(() => {
          const waiting = this.#streams.get(key)
          const next = waiting?.shift()
          if (next === undefined) this.#streams.delete(key)
          else next()
          done()
          this.#readable(key)
        }),
      )
    const queue = this.#streams.get(key)
    if (queue !== undefined) queue.push(locked)
    else {
      this.#streams.set(key, [])
      locked()
    }
  }

  #readable(key: number): void {
    const reader = this.#readers[key % this.#readers.length] as Reader
    reader.pending.push(this.#agenda.now)
    if (reader.state === 'idle') this.#look(reader)
  }

  #look(reader: Reader): void {
    const { look, deliveryCpuMs, sinkMs } = this.#system
    reader.state = 'busy'
    const at = Math.max(this.#agenda.now, reader.lookedAt + look.pauseMs)
    this.#agenda.after(at - this.#agenda.now + look.waitMs, () => {
      reader.lookedAt = this.#agenda.now
      const batch = reader.pending.splice(0, BATCH)
      this.#cpu.run(this.#chance(look.cpuMs) + batch.length * deliveryCpuMs, () => {
        for (const committedAt of batch)
          if (committedAt >= this.#fromMs) this.#deliveryMs.push(this.#agenda.now - committedAt)
        this.#agenda.after(batch.length * sinkMs, () => {
          if (reader.pending.length > 0) this.#look(reader)
          else reader.state = 'idle'
        })
      })
    })
  }

  #upkeep(cores: number): void {
    if (cores === 0) return
    this.#agenda.after(this.#chance(UPKEEP_PIECE_MS / cores), () => {
      this.#cpu.run(UPKEEP_PIECE_MS, () => undefined)
      this.#upkeep(cores)
    })
  }

  #chance(mean: number): number {
    return -Math.log(1 - this.#random()) * mean
  }

  #below(count: number): number {
    return Math.floor(this.#random() * count)
  }
}

interface Pool {
  free: number
  readonly waiting: (() => void)[]
}

interface Reader {
  readonly pending: number[]
  state: 'idle' | 'busy'
  lookedAt: number
}

/** First come, first served. */
class Processors {
  readonly #agenda: Agenda
  readonly #fromMs: number
  readonly #untilMs: number
  readonly #cores: number
  #free: number
  #busyMs = 0
  readonly #waiting: (() => void)[] = []
  #next = 0

  constructor(agenda: Agenda, cores: number, fromMs: number, untilMs: number) {
    this.#agenda = agenda
    this.#cores = cores
    this.#free = cores
    this.#fromMs = fromMs
    this.#untilMs = untilMs
  }

  get busyShare(): number {
    return this.#untilMs === 0 ? 0 : this.#busyMs / (this.#cores * (this.#untilMs - this.#fromMs))
  }

  run(ms: number, done: () => void): void {
    const start = (): void => {
      const { now } = this.#agenda
      this.#busyMs += Math.max(0, Math.min(now + ms, this.#untilMs) - Math.max(now, this.#fromMs))
      this.#agenda.after(ms, () => {
        const waiting = this.#waiting[this.#next]
        if (waiting === undefined) {
          this.#free++
          this.#waiting.length = this.#next = 0
        } else {
          this.#next++
          waiting()
        }
        done()
      })
    }
    if (this.#free === 0) this.#waiting.push(start)
    else {
      this.#free--
      start()
    }
  }
}

/** One flush at a time. What comes meanwhile shares the next one. */
class Disk {
  readonly #agenda: Agenda
  readonly #flushMs: number
  #waiting: (() => void)[] = []
  #flushing = false
  flushes = 0

  constructor(agenda: Agenda, flushMs: number) {
    this.#agenda = agenda
    this.#flushMs = flushMs
  }

  flush(done: () => void): void {
    this.#waiting.push(done)
    if (!this.#flushing) this.#begin()
  }

  #begin(): void {
    const group = this.#waiting
    this.#waiting = []
    this.#flushing = true
    this.flushes++
    this.#agenda.after(this.#flushMs, () => {
      this.#flushing = false
      if (this.#waiting.length > 0) this.#begin()
      for (const done of group) done()
    })
  }
}

/** What happens when: a binary heap by time, and by the order in which it was noted. */
class Agenda {
  now = 0
  readonly #heap: Entry[] = []
  #noted = 0

  after(ms: number, work: () => void): void {
    const entry = { at: this.now + ms, order: this.#noted++, work }
    let place = this.#heap.push(entry) - 1
    while (place > 0) {
      const parent = (place - 1) >> 1
      if (isBefore(this.#heap[parent] as Entry, entry)) break
      this.#heap[place] = this.#heap[parent] as Entry
      place = parent
    }
    this.#heap[place] = entry
  }

  runUntil(ms: number): void {
    for (;;) {
      const [first] = this.#heap
      if (first === undefined || first.at > ms) break
      this.#removeFirst()
      this.now = first.at
      first.work()
    }
    this.now = ms
  }

  #removeFirst(): void {
    const last = this.#heap.pop() as Entry
    const count = this.#heap.length
    if (count === 0) return
    let place = 0
    for (;;) {
      const left = 2 * place + 1
      if (left >= count) break
      const right = left + 1
      const child = right < count && isBefore(this.#heap[right] as Entry, this.#heap[left] as Entry) ? right : left
      if (isBefore(last, this.#heap[child] as Entry)) break
      this.#heap[place] = this.#heap[child] as Entry
      place = child
    }
    this.#heap[place] = last
  }
}

interface Entry {
  readonly at: number
  readonly order: number
  readonly work: () => void
}

function isBefore(one: Entry, other: Entry): boolean {
  return one.at < other.at || (one.at === other.at && one.order < other.order)
}

function percentilesOf(samples: readonly number[]): Percentiles {
  const sorted = samples.toSorted((one, other) => one - other)
  const at = (share: number): number => sorted[Math.floor((sorted.length - 1) * share)] ?? 0
  return { p50: at(0.5), p99: at(0.99) }
}

/** A small generator of random numbers, from 0 to below 1, that a seed determines. */
function mulberry32(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}
