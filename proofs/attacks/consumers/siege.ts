import { setTimeout as sleep } from 'node:timers/promises'
import { type Outbox, ReplayStoppedError, type Sink } from 'pg-lockstep'
import type { PostgresServer } from '../../../tools/server/postgres.ts'
import { strikeSessions } from '../../faults/sessions.ts'
import type { Random } from '../../seed.ts'
import type { ReportProgress } from '../attack.ts'
import { makeDatabase } from '../database.ts'
import type { Planted } from '../processes/consumerProcess.ts'
import { Books, type Judged } from './books.ts'
import { Crew } from './crew.ts'
import { type SourceName, startSource } from './sources.ts'

/** What strikes: `again` sends what was sent, `restart` is of the broker, or of PostgreSQL where that is the source. */
export type FaultName = 'kill' | 'pause' | 'change' | 'restart' | 'again' | 'terminate'

export interface Siege {
  readonly source: SourceName
  readonly planted?: Planted
  readonly events: number
  readonly keys: number
  readonly processes: number
  /** How often each fault strikes. */
  readonly faults: Readonly<Partial<Record<FaultName, number>>>
  /** Of a transaction. */
  readonly timeoutMs: number
  /** For so long a process is stopped. */
  readonly pauseMs: number
}

/** What was found. */
export interface Besieged extends Judged {
  readonly source: SourceName
  readonly planted: Planted | undefined
  readonly struck: Readonly<Record<FaultName, number>>
  /** Processes that did not end when they were asked to, or that ended by themselves. */
  readonly strays: number
}

const DOWN_MS = 200
const SESSIONS = 3
/** For so long nothing new may come before the rest counts as lost. */
const SILENT_MS = 90_000
const CONTROL_SILENT_MS = 5000
const STOP_MS = 60_000

let sieges = 0

/** A consumer of one source, while events come and faults strike: each of them with a part of the events in progress. */
export async function besiege(
  server: PostgresServer,
  siege: Siege,
  random: Random,
  reportProgress: ReportProgress,
): Promise<Besieged> {
  const { source, planted, timeoutMs } = siege
  const name = `${source}_${++sieges}`
  const topic = `consumed-${sieges}`
  const database = await makeDatabase(server, name)
  const books = new Books(database, topic, siege.keys, random)
  await books.open()
  const crew = new Crew(random)
  const running = await startSource(source, topic, server, crew.port)
  const { sink, address, secret } = running
  const { outbox } = database.lockstep
  const stop = new AbortController()
  const dispatching =
    sink && outbox.dispatcher({ sink, shards: 4, backoffMs: { longest: 500 } }).run({ signal: stop.signal })
  const struck: Record<FaultName, number> = { kill: 0, pause: 0, change: 0, restart: 0, again: 0, terminate: 0 }
  let stuck = 0
  const strikers: Readonly<Record<FaultName, () => Promise<unknown>>> = {
    kill: () => crew.kill(),
    pause: () => crew.whileStopped(() => sleep(siege.pauseMs)),
    async change() {
      if (!(await crew.change(STOP_MS))) stuck++
    },
    async restart() {
      await running.kill()
      await sleep(DOWN_MS)
      await running.start()
    },
    // Where the broker keeps out what comes twice, duplicates come from the other faults.
    again: async () => sink && replayAll(outbox, topic, sink),
    terminate: () => strikeSessions(database.pool, 'terminate', { application: 'consumer', most: SESSIONS }),
  }
  try {
    const faults = random.shuffled(namesOf(siege))
    const portion = Math.ceil(siege.events / (faults.length + 1))
    await books.write(portion)
    await crew.start({ url: database.url, source, address, name, topic, timeoutMs, secret, planted }, siege.processes)
    for (const [place, fault] of faults.entries()) {
      reportProgress(`consumers: ${name}, ${place} of ${faults.length} faults, ${books.written} events`)
      await books.reached(books.written - random.below(portion), SILENT_MS)
      const writing = books.write(portion)
      await strikers[fault]()
      struck[fault]++
      await writing
    }
    reportProgress(`consumers: ${name}, waiting for the rest`)
    await books.settled(planted === undefined ? SILENT_MS : CONTROL_SILENT_MS, planted === 'no inbox')
    stuck += await crew.stop(STOP_MS)
    return { source, planted, struck, strays: stuck + crew.surprises, ...(await books.judge()) }
  } finally {
    await crew.killAll()
    stop.abort()
    await dispatching
    await running.stop()
    await database.close()
  }
}

/** A broker that was started again has closed the sink's connection: the replay continues where the sink did not take an event. */
async function replayAll(outbox: Outbox, topic: string, sink: Sink): Promise<void> {
  for (let fromPosition = 0; ; await sleep(DOWN_MS)) {
    try {
      await outbox.replay({ topic, sink, fromPosition })
      return
    } catch (error) {
      if (!(error instanceof ReplayStoppedError)) throw error
      fromPosition = error.position - 1
    }
  }
}

function namesOf({ faults }: Siege): FaultName[] {
  return Object.entries(faults).flatMap(([name, times]) => Array.from({ length: times }, () => name as FaultName))
}
