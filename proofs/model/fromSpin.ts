import type { Batch, CommittedEvent, Cursor, Snapshot, Tick, Trace } from '../trace/trace.ts'

/** What a run of outbox.pml prints, as a trace of prove. */
export function traceFromSpin(steps: readonly string[]): Trace {
  let events: CommittedEvent[] = []
  let ticks: Tick[] = []
  let cursors: Cursor[] = []
  const batches: Batch[] = []
  const waiting = new Set<number>()
  let [crashed, complete] = [false, false]
  for (const step of steps) {
    const [what, ...values] = step.split(' ')
    const [first = 0, second = 0, third = 0, fourth = 0, fifth = 0, sixth = 0, seventh = 0, eighth = 0, ninth = 0] =
      values.map(Number)
    if (what === 'event') {
      events.push({ shard: 0, position: first, xid: second, stream: `s${third}`, seq: fourth, id: `e${first}` })
    } else if (what === 'tick') ticks.push({ xid: first, snapshot: snapshot(second, third) })
    else if (what === 'take') {
      const { prev, next, after, done } = cursors.at(-1) ?? { prev: BEGIN, next: BEGIN, after: 0, done: true }
      cursors.push({ shard: 0, version: first, fence: String(second), prev, next, after, done, aside: [] })
    } else if (what === 'move') {
      const aside = bits(ninth)
      for (const position of aside) waiting.add(position)
      const [prev, next] = [snapshot(third, fourth), snapshot(fifth, sixth)]
      cursors.push({
        shard: 0,
        version: first,
        fence: String(second),
        prev,
        next,
        after: seventh,
        done: eighth === 1,
        aside,
      })
    } else if (what === 'sent') {
      const event = { stream: `s${fourth}`, seq: fifth, id: `e${third}`, position: third }
      batches.push({ shard: 0, fence: String(first), beside: second === 1, events: [event], taken: [sixth === 1] })
      if (second === 1 && sixth === 1) waiting.delete(third)
    } else if (what === 'lost') events = events.filter(({ position }) => position !== first)
    else if (what === 'failure') {
      crashed = true
      ticks = []
      cursors = cursors.filter(({ version }) => version <= first)
    } else if (what === 'end') complete = true
  }
  return { events, ticks, cursors, batches, waiting: [...waiting], clashes: [], crashed, complete }
}

const BEGIN: Snapshot = { end: 1, inProgress: [] }

function snapshot(end: number, inProgress: number): Snapshot {
  return { end, inProgress: bits(inProgress) }
}

function bits(set: number): number[] {
  return Array.from({ length: 16 }, (_, bit) => bit).filter((bit) => ((set >> bit) & 1) === 1)
}
