import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { InvalidOptionError } from '../index.ts'
import { checkPrometheus, mergeHistories, PrometheusHistory, type PrometheusSource } from './prometheusHistory.ts'
import type { HistorySample } from './wire.ts'

const NOW_MS = Date.parse('2026-03-01T12:00:04Z')
const END_S = Date.parse('2026-03-01T12:00:00Z') / 1000

type Values = readonly (readonly [number, string])[]

/** Answers as Prometheus does, by a part of the query. */
async function prometheus(
  series: Readonly<Record<string, readonly Values[]>>,
  status = 200,
): Promise<{ url: string; asked: URL[]; authorization: (string | undefined)[] }> {
  const asked: URL[] = []
  const authorization: (string | undefined)[] = []
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '', 'http://prometheus')
    asked.push(url)
    authorization.push(request.headers.authorization)
    const query = url.searchParams.get('query') ?? ''
    const found = Object.entries(series).find(([part]) => query.includes(part))?.[1] ?? []
    const result = found.map((values) => ({ metric: {}, values }))
    response
      .writeHead(status, { 'content-type': 'application/json' })
      .end(JSON.stringify({ status: 'success', data: { resultType: 'matrix', result } }))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.close()
    server.closeAllConnections()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked, authorization }
}

const historyOf = (source: PrometheusSource, database = 'shop'): PrometheusHistory =>
  new PrometheusHistory(source, async () => database)

test('puts the figures of one moment together, and leaves out what is unknown', async () => {
  const { url, asked, authorization } = await prometheus({
    xact_commit: [
      [
        [END_S - 20, '41.26'],
        [END_S - 10, '7'],
      ],
    ],
    lag_seconds: [[[END_S - 10, '1500']]],
    lock_wait_seconds: [
      [
        [END_S - 20, 'NaN'],
        [END_S - 10, '+Inf'],
      ],
    ],
  })
  const history = historyOf({ url: `${url}/`, headers: { authorization: 'Bearer prom' } })
  const samples = await history.samples(NOW_MS, 0)
  expect(samples).toMatchObject([
    { at: '2026-03-01T11:59:40.000Z', commitsPerSecond: 41.3, outboxLagMs: null, longestLockWaitMs: null },
    {
      at: '2026-03-01T11:59:50.000Z',
      commitsPerSecond: 7,
      outboxLagMs: 1500,
      longestLockWaitMs: null,
      lockWaiters: null,
    },
  ])
  expect(Object.fromEntries(asked[0]?.searchParams ?? [])).toMatchObject({
    query: 'sum(rate(pg_stat_database_xact_commit{datname="shop"}[3m]))',
    start: String(END_S - 3600),
    end: String(END_S),
    step: '10',
  })
  expect(new Set(asked.map(({ pathname }) => pathname))).toEqual(new Set(['/api/v1/query_range']))
  expect(new Set(authorization)).toEqual(new Set(['Bearer prom']))
  // However many pages are opened, it is asked once.
  await history.samples(NOW_MS + 9_000, 9_000)
  expect(asked).toHaveLength(6)
  await history.samples(NOW_MS + 10_000, 10_000)
  expect(asked).toHaveLength(12)
  // The clock was set back.
  await history.samples(NOW_MS - 3_600_000, 20_000)
  expect(asked).toHaveLength(18)
  expect(asked.at(-1)?.searchParams.get('end')).toBe(String(END_S - 3600))
})

test.each(['/', '/prometheus', '/prometheus/'])('asks below the path %s', async (path) => {
  const { url, asked } = await prometheus({})
  await historyOf({ url: ` ${url}${path} ` }).samples(NOW_MS)
  const below = `${path.replace(/\/$/, '')}/api/v1/query_range`
  expect(new Set(asked.map(({ pathname }) => pathname))).toEqual(new Set([below]))
})

test('uses the queries of the options, and none by the database while its name is unknown', async () => {
  const { url, asked } = await prometheus({})
  await historyOf({ url, queries: { lockWaiters: 'my_waiters' } }, '').samples(NOW_MS)
  const queries = asked.map(({ searchParams }) => searchParams.get('query'))
  expect(queries).toContain('my_waiters')
  expect(queries.filter((query) => query?.includes('datname') === true)).toEqual([])
})

test.each([
  ['an error', { lag_events: [] }, 503, 'Prometheus answered 503.'],
  ['several series', { lag_events: [[[END_S, '1']], [[END_S, '2']]] }, 200, 'has several series'],
] as const)('rejects %s', async (_, series, status, message) => {
  const { url } = await prometheus(series, status)
  await expect(historyOf({ url }).samples(NOW_MS)).rejects.toThrow(message)
})

test('rejects where nothing answers', async () => {
  await expect(historyOf({ url: 'http://127.0.0.1:1' }).samples(NOW_MS)).rejects.toThrow('Prometheus does not answer.')
})

test('prefers what the process has seen itself', () => {
  const sample = (second: number, commitsPerSecond: number): HistorySample =>
    ({ at: new Date((END_S + second) * 1000).toISOString(), commitsPerSecond }) as HistorySample
  const merged = mergeHistories([sample(12, 1), sample(31, 2)], [sample(0, 3), sample(10, 4), sample(20, 5)])
  expect(merged.map(({ commitsPerSecond }) => commitsPerSecond)).toEqual([3, 1, 5, 2])
})

test.each<[string, PrometheusSource]>([
  ['no address', { url: 'prometheus' }],
  ['a password', { url: 'http://ada:secret@prometheus:9090' }],
  ['a query', { url: 'http://p:9090?tenant=a' }],
  ['an empty query', { url: 'http://p:9090/?' }],
  ['a fragment', { url: 'http://p:9090/#a' }],
  ['an empty fragment', { url: 'http://p:9090#' }],
  ['a file', { url: 'file:///etc/passwd' }],
  ['an unknown figure', { url: 'http://p', queries: { lag: 'x' } as never }],
  ['an empty PromQL', { url: 'http://p', queries: { outboxLagMs: '' } }],
  ['an unknown option', { url: 'http://p', token: 'x' } as never],
])('refuses %s', (_, source) => {
  expect(() => checkPrometheus(source)).toThrow(InvalidOptionError)
})
