import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { type Goal, goal } from '../../../tools/judge/report.ts'
import { nodeArguments } from '../../../tools/server/nodeArguments.ts'
import type { Arena, Edge } from '../edges/edge.ts'
import { EMPTY, GIANT, PARK, PARK_STREAMS, SMALL, WITH_LIMIT, WITHOUT_LIMIT } from './largeEvents.sql.ts'

interface Size {
  readonly heapMb: number
  readonly streams: number
  readonly events: number
}

const SIZES: { readonly full: Size; readonly scaledDown: Size } = {
  full: { heapMb: 512, streams: 30, events: 50 },
  scaledDown: { heapMb: 80, streams: 6, events: 25 },
}

const EVENT_BYTES = 900_000
/** In hex, that is more than a string of Node can have. */
const GIANT_BYTES = 280_000_000
const REFUSED_BYTES = 2_000_000
const SMALL_EVENTS = 20
/** What has not ended by then does nothing any more. */
const LONGEST_MS = 300_000

/**
 * Payloads that do not fit into the memory of a dispatcher: parked streams full of large events, and one event that no string can hold.
 * The process must deliver the first and everything beside the second, and stay alive. The controls read what is there and die of it.
 */
export const largeEvents: Edge = {
  name: 'large-events',
  async run(arena) {
    const size = arena.scaledDown ? SIZES.scaledDown : SIZES.full
    await arena.lab.admin.query(EMPTY)
    try {
      return [...(await parked(arena, size)), ...(await giant(arena, size))]
    } finally {
      await arena.lab.admin.query(WITH_LIMIT)
      await arena.lab.admin.query(EMPTY)
    }
  },
}

async function parked(arena: Arena, { heapMb, streams, events }: Size): Promise<readonly Goal[]> {
  const { lab, reportProgress, driver } = arena
  const name = `parked-${driver}`
  reportProgress('large-events: parking')
  await lab.admin.query(PARK, [name, streams, events, EVENT_BYTES])
  await lab.admin.query(PARK_STREAMS, [name, streams])
  const all = streams * events
  reportProgress('large-events: delivering what is parked')
  const control = await run(arena, heapMb, 'read all', name, all)
  const got = await run(arena, heapMb, 'deliver', name, all)
  return [
    goal('dispatchers that died of parked streams', got === undefined ? 1 : 0, '=', 0),
    goal('parked events that were not delivered', all - (got ?? 0), '=', 0),
    goal('control, a process that read all of them and died', control === undefined ? 1 : 0, '=', 1),
  ]
}

async function giant(arena: Arena, { heapMb }: Size): Promise<readonly Goal[]> {
  const { lab, reportProgress, driver } = arena
  reportProgress('large-events: one giant event')
  const refused = await lab.admin.query(GIANT, [REFUSED_BYTES]).then(
    () => 0,
    (error: { code?: string }) => (error.code === '54000' ? 1 : 0),
  )
  await lab.admin.query(WITHOUT_LIMIT)
  await lab.admin.query(GIANT, [GIANT_BYTES])
  await lab.admin.query(WITH_LIMIT)
  await lab.admin.query(SMALL, [SMALL_EVENTS])
  const name = `giant-${driver}`
  const control = await run(arena, heapMb, 'read next', name, 1)
  const got = await run(arena, heapMb, 'deliver', name, SMALL_EVENTS)
  const [stream, ...others] = await lab.client(driver, lab.url('direct')).lockstep.outbox.parked({ dispatcher: name })
  return [
    goal('events above the limit that SQL refused', refused, '=', 1),
    goal('events beside the giant one that were not delivered', SMALL_EVENTS - (got ?? 0), '=', 0),
    goal('parked streams beside that of the giant event', others.length, '=', 0),
    goal('parked streams of the giant event', stream?.key === 'one' ? 1 : 0, '=', 1),
    goal('control, a process that read the giant event and died', control === undefined ? 1 : 0, '=', 1),
  ]
}

/** How many events the process got; undefined where it died. */
async function run(
  { lab, driver }: Arena,
  heapMb: number,
  what: 'deliver' | 'read all' | 'read next',
  name: string,
  wanted: number,
): Promise<number | undefined> {
  const program = nodeArguments(new URL('../processes/smallHeapProcess.ts', import.meta.url))
  const args = [what, driver, lab.url('direct'), name, String(wanted)]
  const child = spawn(process.execPath, [`--max-old-space-size=${heapMb}`, ...program, ...args], {
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  })
  let got: number | undefined
  child.on('message', (count) => (got = Number(count)))
  const timer = setTimeout(() => child.kill('SIGKILL'), LONGEST_MS)
  const [code] = (await once(child, 'exit')) as [number | null]
  clearTimeout(timer)
  return code === 0 ? got : undefined
}
