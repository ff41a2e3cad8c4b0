import { hostname } from 'node:os'
import type { Connection, StatementResult } from './connection.ts'
import type { ServerEpoch } from './serverEpoch.ts'
import {
  ANSWERING_PROCESS,
  ensureServerEpoch,
  forgetTrials as forgetting,
  rememberedTrials,
  rememberTrial as remembering,
  ROLLBACK,
} from './postgres.sql.ts'
import { codeOf, INSUFFICIENT_PRIVILEGE } from './sqlstate.ts'

/** How keys are locked. */
export type LockStrategy = 'advisory' | 'table'

/** A later release that tries more has a higher number, and does not count on older trials. */
const TRIAL_VERSION = 2

/** Straight to the server as far as can be seen, or through a pooler. */
export type ConnectionKind = 'direct' | 'pooled'

/** With how many connections of a kind the locks were tried on this server, by this route: 0, 1 or 2. */
export type TriedKinds = Readonly<Record<ConnectionKind, number>>

const UNTRIED: TriedKinds = { direct: 0, pooled: 0 }

/** The server behind a connection. */
export interface KnownServer {
  readonly serverEpoch: ServerEpoch
  /** Of the connection that was asked. */
  readonly kind: ConnectionKind
  readonly tried: TriedKinds
}

/** Whether a connection leads directly to this server process. A connection without a process id might not. */
export function kindOf({ protocolPid }: Connection, pid: string): ConnectionKind {
  return protocolPid === Number(pid) ? 'direct' : 'pooled'
}

/** Reads which server this is, and what its schema remembers of trials, in one message. */
export async function readServer(
  connection: Connection,
  quotedSchema: string,
  strategy: LockStrategy,
): Promise<KnownServer> {
  const route = routeOf(connection)
  const trials = route === undefined ? [] : [rememberedTrials(quotedSchema, strategy, route, TRIAL_VERSION)]
  const results = await connection
    .script(ensureServerEpoch(quotedSchema, [ANSWERING_PROCESS, ...trials]))
    .catch(async (error: unknown): Promise<StatementResult[]> => {
      if (connection.lost) throw error
      await connection.script(ROLLBACK)
      // The role may use locks and not read the trials: then it tries once in every process.
      if (codeOf(error) !== INSUFFICIENT_PRIVILEGE) throw error
      return connection.script(ensureServerEpoch(quotedSchema, [ANSWERING_PROCESS]))
    })
  const row = results[1]?.rows[0] as Omit<ServerEpoch, 'epoch'> & { epoch: string; pid: string; trials?: string | null }
  const { epoch, pid, trials: found, ...rest } = row
  const remembered = (found ?? '').split(',').map((each) => each.split(' '))
  return {
    serverEpoch: { ...rest, epoch: BigInt(epoch) },
    kind: kindOf(connection, pid),
    tried: { ...UNTRIED, ...Object.fromEntries(remembered.map(([kind, connections]) => [kind, Number(connections)])) },
  }
}

/**
 * What the connection leads to, as the driver is configured. `localhost` means another thing on each machine: a pooler next to the
 * application has to be tried on each.
 */
function routeOf({ route }: Connection): string | undefined {
  if (route === undefined) return undefined
  return /^(?:localhost|127\.|::1|\[::1\]|\/)/.test(route) ? `${route} on ${hostname()}` : route
}

/** Remembers a trial that found nothing wrong. What cannot be remembered is tried again by the next process. */
export async function rememberTrial(
  connection: Connection,
  quotedSchema: string,
  strategy: LockStrategy,
  kind: ConnectionKind,
  connections: number,
): Promise<void> {
  const route = routeOf(connection)
  if (route === undefined) return
  const trial = { route, strategy, pooled: kind === 'pooled', connections, version: TRIAL_VERSION }
  await quietly(connection, remembering(quotedSchema, trial))
}

/** Has every process that comes by this route try again. */
export async function forgetTrials(connection: Connection, quotedSchema: string): Promise<void> {
  const route = routeOf(connection)
  if (route !== undefined) await quietly(connection, forgetting(quotedSchema, route))
}

async function quietly(connection: Connection, text: string): Promise<void> {
  if (connection.lost) return
  try {
    await connection.script(text)
  } catch {
    await connection.script(ROLLBACK).catch(() => connection.destroy())
  }
}
