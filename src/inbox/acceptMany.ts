import type { HistoryDivergedError, InboxGapError } from '../errors.ts'
import { type CheckedEvent, checkRest, checkStream, type InboxEvent } from './event.ts'
import type { RunRow } from './inbox.sql.ts'

/**
 * What one of many events is to a consumer. An error says why it cannot be accepted; those of its stream that come after it are `held`:
 * nothing was decided about them.
 */
export type BatchVerdict = 'first' | 'duplicate' | 'tombstone' | 'held' | InboxGapError | HistoryDivergedError

/** Events of one stream with consecutive numbers, by their places in a batch. */
export interface Run {
  readonly topic: string
  readonly key: string
  readonly first: number
  readonly places: number[]
}

/** A batch as it will be sent: the caller may change its objects afterwards. */
export interface BatchRequest {
  readonly events: readonly CheckedEvent[]
  /** The first run of each stream. What does not follow on it is left for another time. */
  readonly runs: readonly Run[]
}

export function batchRequestOf(given: readonly InboxEvent[]): BatchRequest {
  const runs = new Map<string, Run>()
  /** The generation of each run's last event. */
  const newest = new Map<string, number | undefined>()
  const events = given.map((event, place) => {
    const { topic, key } = event ?? ({} as InboxEvent)
    const name = `${topic}\0${key}`
    const run = runs.get(name)
    // The names of a stream are looked at once: in a batch that is most of what there is to check.
    if (run === undefined) checkStream(event)
    const checked = checkRest({ topic, key }, event)
    if (run === undefined) runs.set(name, { topic, key, first: checked.seq, places: [place] })
    else if (checked.seq === run.first + run.places.length && follows(newest.get(name), checked)) run.places.push(place)
    else return checked
    newest.set(name, checked.generation)
    return checked
  })
  return { events, runs: [...runs.values()] }
}

/** Generations do not decrease within a history: an event of an earlier one is judged when those before it are accepted. */
function follows(newest: number | undefined, { generation }: CheckedEvent): boolean {
  return newest === undefined || generation === undefined || generation >= newest
}

/** The values of the question, after the consumer's name. */
export function valuesOf({ runs, events }: BatchRequest): string[][] {
  const ordered = runs.flatMap(({ places }) => places.map((place) => events[place] as CheckedEvent))
  return [
    runs.map(({ topic }) => topic),
    runs.map(({ key }) => key),
    runs.map(({ first }) => String(first)),
    runs.map(({ places }) => String(places.length)),
    ordered.map(({ id }) => id),
    ordered.map(({ generation }) => String(generation ?? '')),
  ]
}

/** What makes the errors of a verdict. */
export interface Refusals {
  gap(event: CheckedEvent, expected: number): InboxGapError
  diverged(event: CheckedEvent, verdict: 'diverged' | 'outdated'): HistoryDivergedError
}

/** The verdict on each event. */
export function verdictsOn(
  { events, runs }: BatchRequest,
  rows: readonly RunRow[],
  refusals: Refusals,
): BatchVerdict[] {
  const verdicts: BatchVerdict[] = events.map(() => 'held')
  const told = new Map(rows.map((row) => [Number(row.place) - 1, row]))
  runs.forEach(({ first, places }, index) => {
    const { verdict, seq, at } = told.get(index) ?? { verdict: 'accepted', seq: first - 1, at: null }
    const last = Number(seq)
    for (const place of places) {
      const event = events[place] as CheckedEvent
      if (verdict === 'gap') {
        verdicts[place] = refusals.gap(event, last + 1)
        return
      }
      if ((verdict === 'diverged' || verdict === 'outdated') && event.seq === Number(at)) {
        verdicts[place] = refusals.diverged(event, verdict)
        return
      }
      if (event.seq <= last) verdicts[place] = 'duplicate'
      else verdicts[place] = event.tombstone ? 'tombstone' : 'first'
    }
  })
  return verdicts
}
