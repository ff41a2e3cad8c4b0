/** A waiting statement holds a snapshot, which delays VACUUM and CREATE INDEX CONCURRENTLY: no wait lasts longer than this. */
const SLICE_MS = 2000
/** Behind a pooler an abort cannot cancel the statement, which may be another client's by then: it waits for the slice to end. */
const POOLED_SLICE_MS = 500
/** Without a place, every fourth question waits this long: a caller that only asks is never served where others wait in the queue. */
const SLICE_WITHOUT_SLOT_MS = 60
const ROUNDS_WITHOUT_SLOT = 4

/** How long an opening may wait at the server at a time, where it has a place for that. */
export function sliceWithSlotMs(direct: boolean, longestStatementMs: number): number {
  return Math.min(direct ? SLICE_MS : POOLED_SLICE_MS, longestStatementMs / 2)
}

/** The same without a place; 0: not at all. `always` if a wait costs no other caller. */
export function sliceWithoutSlotMs(round: number, always: boolean): number {
  return always || round % ROUNDS_WITHOUT_SLOT === ROUNDS_WITHOUT_SLOT - 1 ? SLICE_WITHOUT_SLOT_MS : 0
}
