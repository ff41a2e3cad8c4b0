import { evidence, goal, type Goal, type ResultRow } from '../../tools/judge/report.ts'
import { startPostgres } from '../../tools/server/postgres.ts'
import { newSeedFrom, random as randomOf } from '../seed.ts'
import { attack } from './attack.ts'
import { besiege, type Besieged, type Siege } from './consumers/siege.ts'
import { type SourceName, SOURCES } from './consumers/sources.ts'

interface Size extends Omit<Siege, 'source' | 'planted'> {
  readonly sources: readonly SourceName[]
  /** So many are attacked at the same time. */
  readonly lanes: number
  readonly controlEvents: number
}

const CONTROLS: readonly Pick<Siege, 'source' | 'planted'>[] = [
  { source: 'redis', planted: 'no inbox' },
  { source: 'outbox', planted: 'plain concurrency' },
]
const CONTROL_KEYS = 5

/**
 * Processes of one consumer share the events of a source. They are killed with -9, and stopped for longer than a transaction may take; others come and
 * leave; their sessions are ended; brokers are killed and started; everything is sent again; handlers fail now and then. In the end every
 * event has its effect once, and the effects of a key are in order. The controls have the same checkers. One trusts what comes, without the
 * inbox. The other one begins all events at once.
 */
export const consumers = attack<Size>({
  name: 'consumers',
  about:
    'consumers of the outbox and of every broker under kills, pauses, rebalancing and restarts: each effect once, in order',
  parts: SOURCES,
  full: {
    sources: SOURCES,
    lanes: 2,
    events: 33_400,
    controlEvents: 3000,
    keys: 300,
    processes: 3,
    faults: { kill: 10, pause: 5, change: 6, restart: 4, again: 3, terminate: 5 },
    timeoutMs: 3000,
    pauseMs: 4000,
  },
  small: {
    sources: ['outbox', 'redis'],
    lanes: 2,
    events: 800,
    controlEvents: 500,
    keys: 30,
    processes: 2,
    faults: { kill: 1, pause: 1, restart: 1, terminate: 1 },
    timeoutMs: 1000,
    pauseMs: 1500,
  },
  async run(size, reportProgress, random, part) {
    const { sources, controlEvents, ...rest } = size
    const chosen = part === undefined ? sources : SOURCES.filter((source) => source === part)
    const promised = chosen.map((source): Siege => ({ ...rest, source }))
    const control = { ...rest, events: controlEvents, keys: CONTROL_KEYS, processes: 1, faults: { kill: 1 } }
    const controls = part === undefined ? CONTROLS.map((each): Siege => ({ ...control, ...each })) : []
    // A stream of numbers for each: they run at the same time.
    const seed = newSeedFrom(random)
    const sieges = [...promised, ...controls].map((siege, n) => ({ siege, chance: randomOf(seed, n) }))
    const found: Besieged[] = []
    const lane = async (): Promise<void> => {
      const server = await startPostgres({ settings: { max_connections: '200' } })
      try {
        for (let next = sieges.shift(); next !== undefined; next = sieges.shift()) {
          found.push(await besiege(server, next.siege, next.chance, reportProgress))
        }
      } finally {
        await server.stop('immediate')
      }
    }
    await Promise.all(Array.from({ length: size.lanes }, lane))
    const kept = found.filter(({ planted }) => planted === undefined)
    const written = kept.reduce((sum, each) => sum + each.written, 0)
    return {
      results: found.map(rowOf),
      goals: [
        ...kept.flatMap(goalsOf),
        ...found.filter(({ planted }) => planted !== undefined).map(controlOf),
        evidence('events in all', written, '>=', size.events * kept.length),
      ],
    }
  },
})

function rowOf({ source, planted, struck, ...found }: Besieged): ResultRow {
  const { written, deliveries: effects, duplicates: doubled, inversions: overtaken, missing } = found
  return { source, consumer: planted ?? 'as it is', written, effects, doubled, overtaken, missing, ...struck }
}

function goalsOf(found: Besieged): Goal[] {
  const { source, duplicates, diverged, invented, missing, gaps, outOfOrder, inversions, strays, struck } = found
  return [
    goal(`${source}: effects that are there twice, or of no event`, duplicates + diverged + invented, '=', 0),
    goal(`${source}: events without an effect`, missing + gaps, '=', 0),
    goal(`${source}: effects out of the order of their key`, outOfOrder + inversions, '=', 0),
    goal(`${source}: processes that ended by themselves, or not when they were asked to`, strays, '=', 0),
    evidence(`${source}: processes killed with -9`, struck.kill, '>=', 1),
  ]
}

function controlOf({ source, planted, duplicates, inversions }: Besieged): Goal {
  return planted === 'no inbox'
    ? goal(`control, ${source} without the inbox: effects that are there twice`, duplicates, '>=', 1)
    : goal(`control, ${source} with all events at once: effects behind a later one of their key`, inversions, '>=', 1)
}
