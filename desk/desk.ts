import type { OpenAPIHono } from '@hono/zod-openapi'
import type { Lockstep } from 'pg-lockstep'
import type pg from 'pg'

/** The events of the desk's outbox, by topic. */
export interface DeskEvents {
  readonly trades: {
    readonly tradeId: string
    readonly portfolio: string
    readonly symbol: string
    readonly side: 'buy' | 'sell'
    readonly quantity: number
    readonly price: number
  }
}

/** As `--sink` names them. */
export const SINKS = ['local', 'nats', 'redis', 'rabbitmq', 'webhook', 'kafka'] as const
export type SinkName = (typeof SINKS)[number]

/** Where trades are published. */
export interface SinkPlan {
  readonly name: SinkName
  /** Empty: none is needed, or for webhooks the desk itself. */
  readonly url: string
  /** What webhooks are signed with. */
  readonly secret?: string
  /** What a webhook to the desk itself has to show. */
  readonly authorization?: string
}

export interface DeskSink extends SinkPlan {
  /** Where this process answers, once it does. */
  ownOrigin(): string
}

/** What each of the five systems works with. */
export interface Desk {
  readonly pool: pg.Pool
  readonly lockstep: Lockstep<DeskEvents, pg.Pool>
  /** Where the simulated exchange answers. */
  readonly exchangeUrl: string
  /** Where trades are published; without it they go to a log in the database. */
  readonly sink?: DeskSink
  /** How long a request waits for a connection, a lock or its turn. */
  readonly waitMs: number
  /** Names this process in logs, and as a holder of leases. */
  readonly processName: string
  say(line: string): void
}

/** A pool, or a connection in a transaction. */
export type Database = Pick<pg.Pool, 'query'>

/** One thing that must always be so, and what was found. */
export interface Finding {
  readonly invariant: string
  /** How many things were looked at: 0 proves nothing. */
  readonly looked: number
  readonly violations: readonly string[]
}

/** One of the five systems. */
export interface System {
  readonly name: 'trades' | 'instances' | 'positions' | 'transfers' | 'wallets'
  /** Creates what is not there yet. Run at every start, by one process, before the others begin. */
  readonly schema: string
  routes(desk: Desk): OpenAPIHono
  /** What runs beside the requests, in every process, until the signal. */
  background?(desk: Desk, signal: AbortSignal): Promise<void>
  /** Looks at the database when nothing is in progress. */
  check(database: Database): Promise<readonly Finding[]>
}
