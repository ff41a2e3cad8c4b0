import { randomBytes } from 'node:crypto'
import type { ConnectionMemory, KeptStatement } from './connection.ts'

/** A statement that fails this often before its first success is not prepared any more. */
const GIVEN_AT_MOST = 3
/** How many texts that depend on the request are kept. */
const KEPT_AT_MOST = 50

/** No statement of ours has the name of another program's. */
const PROCESS = randomBytes(4).toString('hex')
let names = 0

/** The server process has no statement of that name: other code had it forget everything (DISCARD ALL, DEALLOCATE ALL). */
export const NO_SUCH_STATEMENT = '26000'

/** A statement that was counted on is not what the server process has, or not any more: nothing was written, and trying again helps. */
export class StatementForgottenError extends Error {
  override readonly name = 'StatementForgottenError'
  readonly code = '40001'
}

/** Whether a server process can keep statements: not behind a pooler, where the next transaction has another one. */
export function canKeep(memory: ConnectionMemory | undefined): memory is ConnectionMemory {
  return memory?.pooled === false && memory.keeping?.forgotten === false
}

/** A statement that was there is gone: nothing is kept in this pool any more. */
export function noteForgotten({ keeping }: ConnectionMemory): void {
  if (keeping !== undefined) keeping.forgotten = true
}

/** The statement with this text, to be given to the server process under its name where it is not there. Undefined: it is not kept. */
export function keepStatement(memory: ConnectionMemory, text: string): KeptStatement | undefined {
  const all = (memory.kept ??= new Map())
  let kept = all.get(text)
  if (kept?.there === true) return kept
  if (kept === undefined) {
    if (all.size >= KEPT_AT_MOST) return undefined
    all.set(text, (kept = { name: '', there: false, given: 0 }))
  }
  if (kept.given >= GIVEN_AT_MOST) return undefined
  kept.given++
  kept.name = `lockstep_${PROCESS}_${++names}`
  return kept
}
