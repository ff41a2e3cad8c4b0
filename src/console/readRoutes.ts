import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import type { Key } from '../index.ts'
import { packageVersion } from '../packageVersion.ts'
import { answer, json } from './responses.ts'
import type { HeadRow, ServerRow } from './console.sql.ts'
import type { ConsoleLockstep, ConsolePlan } from './consoleOptions.ts'
import { ConsoleQueries, MAX_PAYLOAD_BYTES } from './queries.ts'
import { mergeHistories, PrometheusHistory } from './prometheusHistory.ts'
import { refuse } from './refusals.ts'
import { RolloutObservations } from './rolloutObservations.ts'
import { Searches } from './searches.ts'
import type { LoginSession } from './sessions.ts'
import { epochsOf, historyOf } from './snapshots.ts'
import { SnapshotPoller, TABS } from './snapshotPoller.ts'
import { Turns } from './turns.ts'
import type { OverviewHistory, Payload, Session, Tab, WaitHistory } from './wire.ts'

/** How long a viewer waits for the name of a database that may be away. */
const NAME_MS = 2000
/** How often a service is asked whether it still knows the person who looks. */
const STILL_KNOWN_EVERY_MS = 60_000

type Read = (session: LoginSession, query: URLSearchParams) => Promise<Response>

/** What is only read, by the path it is asked for under. */
export class ReadRoutes {
  readonly #lockstep: ConsoleLockstep
  readonly #plan: ConsolePlan
  readonly #queries: ConsoleQueries
  readonly #observations: RolloutObservations
  readonly #searches: Searches
  readonly #turns = new Turns()
  readonly #version = packageVersion()
  readonly poller: SnapshotPoller
  readonly #prometheus: PrometheusHistory | undefined
  #server: Promise<ServerRow> | undefined

  constructor(lockstep: ConsoleLockstep, plan: ConsolePlan) {
    this.#lockstep = lockstep
    this.#plan = plan
    this.#queries = new ConsoleQueries(lockstep)
    this.#observations = new RolloutObservations(lockstep.schema)
    this.#searches = new Searches(lockstep, this.#observations)
    this.poller = new SnapshotPoller(this.#queries, plan)
    const { prometheus } = plan
    if (prometheus !== undefined) this.#prometheus = new PrometheusHistory(prometheus, () => this.#databaseName())
  }

  readonly #reads: ReadonlyMap<string, Read> = new Map<string, Read>([
    ['session', (session) => this.#session(session)],
    ['stream', async (session, query) => this.#stream(session, query.get('show') ?? '')],
    ['events', (session, query) => this.#search(() => this.#searches.events(query, session.operator))],
    ['events/payload', (session, query) => this.#eventPayload(session, query)],
    ['dead', (_visit, query) => this.#search(() => this.#searches.deadLetters(query))],
    ['outbox/many', (_visit, query) => this.#search(() => this.#searches.many(query))],
    ['consumers', () => this.#search(() => this.#searches.consumers())],
    ['inbox', (_visit, query) => this.#search(() => this.#searches.inbox(query))],
    ['idempotency', (_visit, query) => this.#search(() => this.#searches.idempotency(query))],
    ['rollout', () => this.#search(() => this.#searches.rollout())],
    ['audit', (_visit, query) => this.#search(() => this.#searches.audit(query))],
    ['leases/search', (_visit, query) => this.#search(() => this.#searches.leases(query))],
    ['epochs', () => this.#epochs()],
    ['history', () => this.#overviewHistory()],
    ['waits', async () => json({ waits: this.poller.history.waits() } satisfies WaitHistory)],
    ['guards', async () => json(await this.#queries.guards())],
    ['leases/history', (_visit, query) => this.#history(query.get('key'))],
    ['outbox/payload', (session, query) => this.#payload(session, query)],
  ])

  at(path: string): Read | undefined {
    return this.#reads.get(path)
  }

  async close(): Promise<void> {
    this.#observations.close()
    await this.poller.close()
  }

  async #search(search: () => Promise<unknown>): Promise<Response> {
    const turn = this.#turns.take(search)
    return turn === undefined ? refuse.busy() : json(await turn)
  }

  async #eventPayload({ operator }: LoginSession, query: URLSearchParams): Promise<Response> {
    if (!operator) return refuse.operatorsOnly()
    return this.#search(() => this.#searches.payload(query, MAX_PAYLOAD_BYTES))
  }

  async #session({ csrf, operator, name }: LoginSession): Promise<Response> {
    const { schema } = this.#lockstep
    const { token, people, replayTo } = this.#plan
    const { database, version } = await this.#knownServer()
    const session: Session = {
      version: this.#version,
      schema,
      database,
      server: version === '' ? '' : `PostgreSQL ${version}`,
      operator,
      name: name ?? null,
      token: token !== undefined || people !== undefined,
      replayTo: Object.keys(replayTo),
      csrf,
    }
    return json(session)
  }

  /** Empty where the database does not answer soon. */
  async #knownServer(): Promise<ServerRow> {
    const nobody: ServerRow = { database: '', version: '' }
    const waited = new AbortController()
    return Promise.race([
      this.#askServer().catch(() => nobody),
      delay(NAME_MS, nobody, { signal: waited.signal }).catch(() => nobody),
    ]).finally(() => waited.abort())
  }

  async #databaseName(): Promise<string> {
    return (await this.#knownServer()).database
  }

  /** A Prometheus that does not answer takes nothing away from what the process has seen itself. */
  async #overviewHistory(): Promise<Response> {
    const own = this.poller.history.samples()
    try {
      const other = (await this.#prometheus?.samples()) ?? []
      return json({ samples: mergeHistories(own, other), trouble: null } satisfies OverviewHistory)
    } catch (error) {
      return json({ samples: own, trouble: (error as Error).message } satisfies OverviewHistory)
    }
  }

  /** Asked until it is known, by one at a time: a database keeps its name. */
  #askServer(): Promise<ServerRow> {
    this.#server ??= this.#queries.server().catch((error: unknown) => {
      this.#server = undefined
      throw error
    })
    return this.#server
  }

  #stream({ id, stillKnown }: LoginSession, show: string): Response {
    const tabs = show.split(',')
    if (!tabs.every((tab): tab is Tab => (TABS as readonly string[]).includes(tab))) return refuse.missing('show')
    const visit = stillKnown === undefined ? id : randomUUID()
    const asking =
      stillKnown === undefined
        ? undefined
        : setInterval(() => {
            // A service that cannot say who it is does not know.
            stillKnown()
              .catch(() => false)
              .then((known) => known || this.poller.end(visit as string))
              .catch(() => undefined)
          }, STILL_KNOWN_EVERY_MS).unref()
    const stream = this.poller.add(new Set(tabs), visit, () => clearInterval(asking))
    if (stream === undefined) clearInterval(asking)
    if (stream === undefined) return refuse.tooManyViewers()
    return answer(200, stream, {
      'content-type': 'text/event-stream',
      'cache-control': 'no-store',
      // nginx would keep it back until its buffer is full.
      'x-accel-buffering': 'no',
    })
  }

  async #epochs(): Promise<Response> {
    return json(epochsOf(await this.#queries.epochs()))
  }

  async #history(key: string | null): Promise<Response> {
    if (key === null || key === '') return refuse.missing('key')
    return json(historyOf(key, await this.#lockstep.leases.history(key as Key)))
  }

  async #payload({ operator }: LoginSession, query: URLSearchParams): Promise<Response> {
    if (!operator) return refuse.operatorsOnly()
    const [dispatcher, topic, key] = [query.get('dispatcher'), query.get('topic'), query.get('key')]
    if (!dispatcher || !topic || !key) return refuse.missing('dispatcher, topic and key')
    const row = await this.#queries.head(dispatcher, topic, key)
    if (row === undefined) return refuse.noHead()
    const content = contentOf(row)
    if (content === undefined) {
      return row.size === null ? refuse.noPayload(row.tombstone ?? 'erased') : refuse.payloadTooLarge(row.size)
    }
    const payload: Payload = {
      seq: Number(row.seq),
      id: row.id,
      enqueuedAt: new Date(Number(row.enqueued)).toISOString(),
      headers: row.headers === null ? {} : (JSON.parse(row.headers) as Record<string, unknown>),
      ...content,
    }
    return json(payload)
  }
}

function contentOf({ payload, hex }: HeadRow): Pick<Payload, 'payload' | 'encoding'> | undefined {
  if (payload !== null) return { payload, encoding: 'json' }
  return hex === null ? undefined : { payload: Buffer.from(hex, 'hex').toString('base64'), encoding: 'base64' }
}
