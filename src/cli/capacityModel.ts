import type { CapacityCosts } from './capacityCosts.ts'
import type { SimulatedSystem } from './capacitySimulation.ts'

/**
 * What a load asks of the database, from the measured cost of one event, one lease and one locked transaction.
 *
 * **Additive.** Processor time, WAL and disk are sums: the number of operations times the cost of each. The dispatchers add three parts: reading (for each
 * event), looking (a look finds one event at a low rate and many at a high one, so looks are bounded for each process), and upkeep (for each process,
 * whether events come or not). A process looks every 1.5 s who else is there, and reads a row for each of the others: this part grows with the
 * square of the processes.
 *
 * **Limits.** Each resource has a limit of its own. The whole load is multiplied until the first one is reached: that is the bottleneck. Latency is not
 * a sum, because of queues: capacitySimulation.ts has it.
 *
 * The benchmark `cost` compares these answers with a server under load.
 */
export interface Load {
  readonly eventsPerS: number
  readonly keys: number
  readonly processes: number
  readonly payloadBytes: number
  readonly leasesPerS: number
  readonly transactionsPerS: number
  /** What the sink of one process takes. */
  readonly sinkPerS: number
  /** Of the database server. Default: as many as are needed. */
  readonly cores: number | undefined
}

export type Resource = 'database CPU' | 'one key' | 'delivery' | 'connections'

export interface Limit {
  readonly resource: Resource
  /** What is used of it: 1 is all of it. */
  readonly used: number
  /** By how much the whole load can be multiplied. Below 1, it does not fit. Infinity where the load does not use it. */
  readonly times: number
}

export interface Capacity {
  /** Cores that are busy on average, and by what. */
  readonly busyCores: number
  readonly busyWith: {
    readonly commits: number
    readonly delivery: number
    readonly upkeep: number
  }
  readonly databaseCores: number
  readonly walBytesPerS: number
  /** For each day that events stay. */
  readonly diskBytesPerDay: number
  readonly connectionsPerProcess: number
  readonly connections: number
  readonly shards: number
  /** Databases that are needed if one does not have enough cores. */
  readonly databases: number
  readonly bottleneck: Limit
  /** The bottleneck first. */
  readonly limits: readonly Limit[]
  readonly fits: boolean
}

/** Above that, waits for a processor grow quickly. */
export const BUSY_AT_MOST = 0.6
/** A large server. What needs more is divided. */
export const LARGEST_SERVER_CORES = 64
/** Above that, a pooler is between. */
export const CONNECTIONS_AT_MOST = 500
const LEAST_CORES = 2
const [FEWEST_SHARDS, MOST_SHARDS] = [8, 512]
/** A dispatcher reads on two connections and listens on a third. */
const CONNECTIONS_OF_DISPATCHER = 3
/** A reader pauses at least 2 ms between two looks. */
export const LOOK_PAUSE_MS = 2
const BALANCE_S = 1.5
const DAY_S = 86_400
const US_PER_S = 1_000_000
/** More is as good as no limit. */
const MOST_TIMES = 1_000_000

export function capacityOf(load: Load, costs: CapacityCosts): Capacity {
  const { eventsPerS, processes } = load
  const shards = shardsOf(load, costs)
  const event = costOfEvent(load, costs)
  const { commits, delivery, upkeep } = busyWith(load, costs)
  const busyCores = commits + delivery + upkeep
  const wanted = Math.max(LEAST_CORES, Math.ceil(busyCores / BUSY_AT_MOST))
  const databaseCores = load.cores ?? Math.min(LARGEST_SERVER_CORES, wanted)
  const connectionsPerProcess = connectionsOf(load, costs)
  const limits = limitsOf({ ...load, cores: databaseCores }, costs)
  return {
    busyCores,
    busyWith: { commits, delivery, upkeep },
    databaseCores,
    walBytesPerS:
      eventsPerS * (event.walBytes + costs.delivery.walBytes) +
      looksPerS(load, shards) * costs.look.walBytes +
      load.leasesPerS * costs.lease.walBytes +
      load.transactionsPerS * costs.transaction.walBytes +
      (eventsPerS === 0 ? 0 : processes * costs.process.walBytesPerS),
    diskBytesPerDay: eventsPerS * event.diskBytes * DAY_S,
    connectionsPerProcess,
    connections: connectionsPerProcess * processes,
    shards,
    databases: Math.max(1, Math.ceil(wanted / (load.cores ?? LARGEST_SERVER_CORES))),
    bottleneck: limits[0] as Limit,
    limits,
    fits: limits.every(({ times }) => times >= 1),
  }
}

/** What is used of each resource: 1 is all of it. */
const USED: Readonly<Record<Resource, (load: Load & { readonly cores: number }, costs: CapacityCosts) => number>> = {
  'database CPU': (load, costs) => {
    const { commits, delivery, upkeep } = busyWith(load, costs)
    return (commits + delivery + upkeep) / (load.cores * BUSY_AT_MOST)
  },
  'one key': (load, costs) => (load.eventsPerS / load.keys) * (streamMs(load, costs) / 1000),
  delivery: (load, costs) =>
    load.eventsPerS / (Math.min(load.processes, MOST_SHARDS) * Math.min(load.sinkPerS, costs.readPerS)),
  connections: (load, costs) => (connectionsOf(load, costs) * load.processes) / CONNECTIONS_AT_MOST,
}

function limitsOf(load: Load & { readonly cores: number }, costs: CapacityCosts): Limit[] {
  const resources = Object.entries(USED) as [Resource, (typeof USED)[Resource]][]
  return resources
    .map(([resource, used]) => ({
      resource,
      used: used(load, costs),
      times: largestFactor((factor) => used({ ...load, ...timesAsMuch(load, factor) }, costs) <= 1),
    }))
    .toSorted((one, other) => one.times - other.times)
}

function timesAsMuch(load: Load, factor: number): Pick<Load, 'eventsPerS' | 'leasesPerS' | 'transactionsPerS'> {
  return {
    eventsPerS: load.eventsPerS * factor,
    leasesPerS: load.leasesPerS * factor,
    transactionsPerS: load.transactionsPerS * factor,
  }
}

/** Not every use grows in proportion: the largest factor that still holds is found by halving. Zero where nothing holds. */
function largestFactor(holds: (factor: number) => boolean): number {
  if (holds(MOST_TIMES)) return Infinity
  let [low, high] = [0, MOST_TIMES]
  for (let step = 0; step < 60; step++) {
    const middle = low === 0 ? high / 2 : Math.sqrt(low * high)
    if (holds(middle)) low = middle
    else high = middle
  }
  return low
}

/** The same load as a system of queues. */
export function systemOf(load: Load, capacity: Capacity, costs: CapacityCosts): SimulatedSystem {
  const event = costOfEvent(load, costs)
  return {
    cores: capacity.databaseCores,
    processes: load.processes,
    connectionsPerProcess: capacity.connectionsPerProcess,
    dispatchers: Math.min(load.processes, capacity.shards),
    keys: load.keys,
    clientMs: costs.clientMs,
    flushMs: costs.flushMs,
    events: { perS: load.eventsPerS, cpuMs: event.cpuUs / 1000 },
    leases: { perS: load.leasesPerS, cpuMs: costs.lease.cpuUs / 1000 },
    transactions: { perS: load.transactionsPerS, cpuMs: costs.transaction.cpuUs / 1000 },
    upkeepCores: capacity.busyWith.upkeep,
    look: { cpuMs: costs.look.cpuUs / 1000, waitMs: costs.look.waitMs, pauseMs: LOOK_PAUSE_MS },
    deliveryCpuMs: deliveryUsOf(load, costs) / 1000,
    sinkMs: 1000 / Math.min(load.sinkPerS, costs.readPerS),
  }
}

/** Cores that are busy on average, and by what. */
function busyWith(load: Load, costs: CapacityCosts): Capacity['busyWith'] {
  const { eventsPerS, leasesPerS, transactionsPerS, processes } = load
  const shards = shardsOf(load, costs)
  const commitsUs =
    eventsPerS * costOfEvent(load, costs).cpuUs +
    leasesPerS * costs.lease.cpuUs +
    transactionsPerS * costs.transaction.cpuUs
  const deliveryUs = eventsPerS * deliveryUsOf(load, costs) + looksPerS(load, shards) * costs.look.cpuUs
  const upkeepUs =
    eventsPerS === 0
      ? 0
      : processes * costs.process.cpuUsPerS + (processes / BALANCE_S) * (processes + shards) * costs.memberCpuUs
  return { commits: commitsUs / US_PER_S, delivery: deliveryUs / US_PER_S, upkeep: upkeepUs / US_PER_S }
}

function deliveryUsOf(load: Load, costs: CapacityCosts): number {
  return Math.max(0, costs.delivery.cpuUs + moreBytes(load, costs) * costs.payloadByte.readCpuUs)
}

/** A power of two, with at least one shard for each process that has to deliver. */
function shardsOf(load: Load, costs: CapacityCosts): number {
  const deliverers = load.eventsPerS / Math.min(load.sinkPerS, costs.readPerS) / BUSY_AT_MOST
  const power = 2 ** Math.ceil(Math.log2(Math.max(FEWEST_SHARDS, deliverers)))
  return Math.min(MOST_SHARDS, power)
}

function moreBytes({ payloadBytes }: Load, costs: CapacityCosts): number {
  return payloadBytes - costs.payloadBytes
}

function costOfEvent(load: Load, costs: CapacityCosts): { cpuUs: number; walBytes: number; diskBytes: number } {
  const more = moreBytes(load, costs)
  const { event, payloadByte } = costs
  return {
    cpuUs: Math.max(0, event.cpuUs + more * payloadByte.cpuUs),
    walBytes: Math.max(0, event.walBytes + more * payloadByte.walBytes),
    diskBytes: Math.max(0, event.diskBytes + more * payloadByte.diskBytes),
  }
}

/** At a low rate each event is found by a look of its own. */
function looksPerS({ eventsPerS, processes }: Load, shards: number): number {
  return Math.min(eventsPerS, Math.min(processes, shards) * (1000 / LOOK_PAUSE_MS))
}

/** How long an event keeps the others of its stream waiting: until it is on disk, and half of the flush before it on average. */
function streamMs(load: Load, costs: CapacityCosts): number {
  return costOfEvent(load, costs).cpuUs / 1000 + 1.5 * costs.flushMs
}

/** By Little's law, with room for peaks. */
function connectionsOf(load: Load, costs: CapacityCosts): number {
  const perS = (load.eventsPerS + load.leasesPerS + load.transactionsPerS) / load.processes
  const ms = costs.clientMs + costOfEvent(load, costs).cpuUs / 1000 + 1.5 * costs.flushMs
  const busy = (perS * ms) / 1000
  const own = Math.ceil(busy + 3 * Math.sqrt(busy)) + 1
  return own + (load.eventsPerS === 0 ? 0 : CONNECTIONS_OF_DISPATCHER)
}
