import { InvalidOptionError } from '../index.ts'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { KEPT_MS, SAMPLE_MS } from './sampling.ts'
import type { HistorySample } from './wire.ts'

/** A figure of the charts of the last hour. */
export type HistoryFigure = Exclude<keyof HistorySample, 'at'>

/** Where the charts of the console get the last hour from, beyond what its own process has seen. */
export interface PrometheusSource {
  /** Where its HTTP API answers, such as `http://prometheus:9090`, without a query. */
  readonly url: string
  /** Sent with each query, such as `authorization`. */
  readonly headers?: Readonly<Record<string, string>>
  /**
   * PromQL by figure. Default: the metrics of `pg-lockstep/prometheus`, and of postgres_exporter for transactions. Set those that need a label
   * where Prometheus scrapes several databases.
   */
  readonly queries?: Readonly<Partial<Record<HistoryFigure, string>>>
}

const SOURCE: OptionNames<PrometheusSource> = { url: true, headers: true, queries: true }

/** For all queries together: the page waits for it. */
const ANSWER_MS = 3000
/** An hour of one series is 15 kB. */
const MAX_BYTES = 1_000_000
/** However many pages are opened, Prometheus is asked once in so long. */
const FRESH_MS = SAMPLE_MS

/** A rate needs two scrapes in its window, and the usual interval is a minute at most. */
const WINDOW = '[3m]'

function defaultQueries(database: string): Partial<Record<HistoryFigure, string>> {
  const here = `{datname=${JSON.stringify(database)}}`
  return {
    ...(database !== '' && {
      commitsPerSecond: `sum(rate(pg_stat_database_xact_commit${here}${WINDOW}))`,
      rollbacksPerSecond: `sum(rate(pg_stat_database_xact_rollback${here}${WINDOW}))`,
    }),
    deliveredPerSecond: `sum(rate(lockstep_outbox_delivered_total${WINDOW}))`,
    longestLockWaitMs: `1000 * histogram_quantile(1, sum by (le) (rate(lockstep_lock_wait_seconds_bucket${WINDOW})))`,
    outboxLagEvents: 'sum(max by (dispatcher) (lockstep_outbox_lag_events))',
    outboxLagMs: '1000 * max(lockstep_outbox_lag_seconds)',
  }
}

const NOTHING: Omit<HistorySample, 'at'> = {
  commitsPerSecond: null,
  rollbacksPerSecond: null,
  enqueuedPerSecond: null,
  deliveredPerSecond: null,
  lockWaiters: null,
  longestLockWaitMs: null,
  outboxLagEvents: null,
  outboxLagMs: null,
}
const FIGURES = Object.keys(NOTHING) as HistoryFigure[]

export function checkPrometheus(source: PrometheusSource | undefined): PrometheusSource | undefined {
  if (source === undefined) return undefined
  checkOptions('prometheus', source, SOURCE)
  // Not repeated: it may have a password.
  if (!isAddress(source.url)) {
    throw new InvalidOptionError('The url of prometheus is not an address, or has a password, a query or a fragment.', {
      advice: 'Use that of its HTTP API, such as http://prometheus:9090; what authorizes is one of `headers`.',
    })
  }
  for (const [figure, query] of Object.entries(source.queries ?? {})) {
    if (FIGURES.includes(figure as HistoryFigure) && typeof query === 'string' && query !== '') continue
    throw new InvalidOptionError(`prometheus has a query for ${figure.slice(0, 100)}.`, {
      advice: `Use PromQL for ${FIGURES.join(', ')}.`,
    })
  }
  return source
}

function isAddress(url: unknown): boolean {
  if (typeof url !== 'string' || !URL.canParse(url)) return false
  const { protocol, username, password } = new URL(url)
  return /^https?:$/.test(protocol) && username === '' && password === '' && !/[?#]/.test(url)
}

/** Reads the last hour from Prometheus. */
export class PrometheusHistory {
  readonly #source: PrometheusSource
  readonly #database: () => Promise<string>
  /** `atMs` is monotonic. */
  #asked: { readonly atMs: number; readonly samples: Promise<HistorySample[]> } | undefined

  constructor(source: PrometheusSource, database: () => Promise<string>) {
    this.#source = source
    this.#database = database
  }

  /** The oldest first. Throws where Prometheus does not answer. */
  samples(nowMs = Date.now(), atMs = performance.now()): Promise<HistorySample[]> {
    if (this.#asked === undefined || atMs - this.#asked.atMs >= FRESH_MS)
      this.#asked = { atMs, samples: this.#read(nowMs) }
    return this.#asked.samples
  }

  async #read(nowMs: number): Promise<HistorySample[]> {
    const queries = { ...defaultQueries(await this.#database()), ...this.#source.queries }
    const signal = AbortSignal.timeout(ANSWER_MS)
    const answers = await Promise.all(
      Object.entries(queries).map(
        async ([figure, query]) => [figure as HistoryFigure, await this.#range(query, nowMs, signal)] as const,
      ),
    )
    const bySlot = new Map<number, HistorySample>()
    for (const [figure, points] of answers) {
      for (const [seconds, value] of points) {
        const slot = slotOf(seconds * 1000)
        const known = bySlot.get(slot) ?? { at: new Date(seconds * 1000).toISOString(), ...NOTHING }
        bySlot.set(slot, { ...known, [figure]: value })
      }
    }
    return [...bySlot].toSorted(([one], [other]) => one - other).map(([, sample]) => sample)
  }

  async #range(query: string, nowMs: number, signal: AbortSignal): Promise<[number, number][]> {
    const { url, headers = {} } = this.#source
    const end = Math.floor(nowMs / SAMPLE_MS) * (SAMPLE_MS / 1000)
    const target = new URL(url)
    target.pathname = `${target.pathname.replace(/\/+$/, '')}/api/v1/query_range`
    target.search = new URLSearchParams({
      query,
      start: String(end - KEPT_MS / 1000),
      end: String(end),
      step: String(SAMPLE_MS / 1000),
    }).toString()
    const answer = await fetch(target, { headers, signal, redirect: 'error' }).catch((error: unknown) => {
      throw new Error('Prometheus does not answer.', { cause: error })
    })
    const text = await readText(answer)
    if (!answer.ok) throw new Error(`Prometheus answered ${answer.status}.`)
    const { data } = JSON.parse(text) as { data?: { result?: { values?: [number, string][] }[] } }
    // A query of several series is not one figure: the first of them would be shown as the whole.
    const [series, ...others] = data?.result ?? []
    if (others.length > 0) throw new Error(`The query ${query} has several series. Use sum() or max().`)
    return (series?.values ?? []).flatMap(([seconds, value]): [number, number][] =>
      Number.isFinite(Number(value)) ? [[seconds, Math.round(Number(value) * 10) / 10]] : [],
    )
  }
}

/** What the process has seen itself, and what Prometheus knows of the moments between and before. The oldest first. */
export function mergeHistories(own: readonly HistorySample[], other: readonly HistorySample[]): HistorySample[] {
  const bySlot = new Map(other.map((sample) => [slotOf(Date.parse(sample.at)), sample]))
  for (const sample of own) bySlot.set(slotOf(Date.parse(sample.at)), sample)
  return [...bySlot.values()].toSorted((one, next) => (one.at < next.at ? -1 : 1))
}

const slotOf = (ms: number): number => Math.floor(ms / SAMPLE_MS)

async function readText(answer: Response): Promise<string> {
  let text = ''
  const decoder = new TextDecoder()
  for await (const chunk of answer.body ?? []) {
    text += decoder.decode(chunk, { stream: true })
    if (text.length > MAX_BYTES) throw new Error(`Prometheus answered with more than ${MAX_BYTES} bytes.`)
  }
  return text
}
