import { hostname } from 'node:os'
import type { Connection } from './connection.ts'
import { type Incarnation, readIncarnation } from './incarnation.ts'
import { ensureServer, forgetTrials as forgetting, rememberTrial as remembering, ROLLBACK } from './postgres.sql.ts'
import { codeOf, INSUFFICIENT_PRIVILEGE } from './sqlstate.ts'

/** How keys are locked. */
export type LockStrategy = 'advisory' | 'table'

/** A later release that tries more has a higher number, and does not count on older trials. */
const TRIAL_VERSION = 1

/** Where the schema remembers a trial that showed locks to exclude. */
export interface TriedRoutes {
  /** By this route, on connections that are direct as far as can be seen. */
  readonly direct: boolean
  /** By this route, on connections through a pooler. */
  readonly pooled: boolean
  /** On this server, by any route. */
  readonly server: boolean
}

/** The server behind a connection. */
export interface KnownServer {
  readonly incarnation: Incarnation
  /** Whether this connection leads through a pooler. */
  readonly pooled: boolean
  readonly tried: TriedRoutes
}

/** Whether a connection to this server process leads through a pooler. One that does not say who it talks to may. */
export function isPooled({ protocolPid }: Connection, pid: string | undefined): boolean {
  return protocolPid === undefined || protocolPid !== Number(pid)
}

/** Reads which server this is, and what its schema remembers of trials, in one message. */
export async function readServer(
  connection: Connection,
  quotedSchema: string,
  strategy: LockStrategy,
): Promise<KnownServer> {
  const route = routeOf(connection) ?? ''
  const results = await connection
    .script(ensureServer(quotedSchema, strategy, route, TRIAL_VERSION))
    .catch(async (error: unknown) => {
      // The role may use locks and not read the trials: then it tries once in every process.
      if (codeOf(error) !== INSUFFICIENT_PRIVILEGE || connection.lost) throw error
      await connection.script(ROLLBACK)
      return undefined
    })
  if (results === undefined) {
    const incarnation = await readIncarnation(connection, quotedSchema)
    return { incarnation, pooled: true, tried: { direct: false, pooled: false, server: false } }
  }
  const { epoch, pid, trials, pooled, ...rest } = results[1]?.rows[0] as {
    value: string
    epoch: string
    timeline: string
    system: string
    database: string
    pid: string
    trials: string
    pooled: string | null
  }
  const kinds = route === '' ? [] : (pooled ?? '').split(',')
  return {
    incarnation: { ...rest, epoch: BigInt(epoch) },
    pooled: isPooled(connection, pid),
    tried: { direct: kinds.includes('false'), pooled: kinds.includes('true'), server: Number(trials) > 0 },
  }
}

/**
 * What the connection leads to, as the driver was told. `localhost` means another thing on each machine: a pooler next to the
 * application has to be tried on each.
 */
function routeOf({ route }: Connection): string | undefined {
  if (route === undefined) return undefined
  return /^(?:localhost|127\.|::1|\[::1\]|\/)/.test(route) ? `${route} on ${hostname()}` : route
}

/** Remembers that locks exclude here. What cannot be remembered is tried again by the next process. */
export async function rememberTrial(
  connection: Connection,
  quotedSchema: string,
  strategy: LockStrategy,
  pooled: boolean,
): Promise<void> {
  const route = routeOf(connection)
  if (route === undefined) return
  await quietly(connection, remembering(quotedSchema, { route, strategy, pooled, version: TRIAL_VERSION }))
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
