import type { Proxy } from 'pg-lockstep/testing'

/**
 * Faults at the one moment that matters: COMMIT is on its way.
 * - `request lost`: COMMIT never reaches the server, the connection is cut.
 * - `answer lost`: the server has committed, its answer never arrives, the connection is cut.
 * - `cut while sent`: the connection is cut as COMMIT is sent: which of the two it was is not known.
 * - `late`: COMMIT is stuck in the network while the client gives up, and is delivered afterwards.
 */
export const COMMIT_FAULTS = ['request lost', 'answer lost', 'cut while sent', 'late'] as const
export type CommitFault = (typeof COMMIT_FAULTS)[number]

/** What a strike did. */
export interface Strike {
  readonly struck: boolean
  /** Delivers what is stuck, if anything. */
  deliver(): void
}

/** Arms the proxy for the next COMMIT that comes through. */
export function strikeNextCommit(proxy: Proxy, fault: CommitFault): Strike {
  let struck = false
  const stuck: { release(): void }[] = []
  const disarm = (): void => {
    struck = true
    proxy.onClientData(undefined)
    proxy.onServerData(undefined)
  }
  if (fault === 'answer lost') {
    proxy.onServerData((chunk) => {
      if (!isCommitAnswer(chunk)) return 'forward'
      disarm()
      return 'cut-before'
    })
  } else {
    proxy.onClientData((chunk, connection) => {
      if (!isCommitRequest(chunk)) return 'forward'
      disarm()
      if (fault === 'late') {
        stuck.push(connection)
        return 'hold'
      }
      return fault === 'request lost' ? 'cut-before' : 'cut-after'
    })
  }
  return {
    get struck() {
      return struck
    },
    deliver: () => stuck.forEach((connection) => connection.release()),
  }
}

/**
 * A simple Query whose whole text is COMMIT, or a Parse of it behind other statements; the opening message of a hand-over has one in its
 * middle. One that the server process keeps is not recognized: its answer is.
 */
export function isCommitRequest(chunk: Buffer): boolean {
  return chunk.includes('Q\0\0\0\u000BCOMMIT\0') || chunk.includes('\0COMMIT\0\0\0')
}

/** A CommandComplete with the tag COMMIT as the first message of an answer, or as the last: then the session is idle. */
function isCommitAnswer(chunk: Buffer): boolean {
  return (
    chunk.includes('C\0\0\0\u000BCOMMIT\0Z\0\0\0\u0005I') ||
    (chunk.subarray(0, 5).toString('latin1') === 'C\0\0\0\u000B' &&
      chunk.subarray(5, 11).toString('latin1') === 'COMMIT')
  )
}
