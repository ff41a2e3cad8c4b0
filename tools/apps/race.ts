/**
 * Two processes of an example application, clients that retry, and kills.
 *
 * Every client sends transfers, each with an Idempotency-Key, to a process that it draws from the seed, and repeats a request with the same key
 * until it has an answer: after a cut connection, after 409 and after 503. Beside them, clients move instances. Meanwhile processes
      ...(app.hasForm === true ? [sendForms(client('forms', number), tally, over.signal)] : []),
 * are killed with SIGKILL and started again. At the end nothing of tables.sql.ts may be there, every transfer that was answered as made
 * is made, and every one has its receipt, in order.
 */
import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'
import { type Random, random } from '../../proofs/seed.ts'
import { type App, AppProcess } from './appProcess.ts'
import { MADE, MISSING, OPEN_ACCOUNTS, PROGRESS, TABLES, VIOLATIONS } from './tables.sql.ts'

export interface RaceOptions {
  readonly kills: number
  /** Requests of each kind between two kills, at least. */
  readonly requestsPerKill: number
  /** Of what the clients draw: accounts, instances, users and processes. */
  readonly seed: number
}

export interface RaceResult {
  readonly kills: number
  readonly transfers: number
  readonly replays: number
  readonly steps: number
  readonly refusals: number
  /** Forms that were sent, each twice or more. */
  readonly forms: number
  readonly violations: readonly string[]
}

const ACCOUNTS = ['a', 'b', 'c', 'd']
const BALANCE = 1000
const INSTANCES = ['one', 'two']
const CLIENTS = 4
const PROCESSES = 2
const KEYS = ['key-of-alice', 'key-of-bob']
/** Receipts come after the last answer; a dispatcher that was killed has to lose its shards first. */
const LONGEST_DELIVERY_MS = 60_000

interface Tally {
  transfers: number
  replays: number
  steps: number
  refusals: number
  readonly made: string[]
  /** The ids of the forms that were answered. */
  readonly sent: string[]
  readonly surprises: string[]
}

interface Client {
  readonly number: number
  readonly chance: Random
  /** Of any process. */
  readonly url: () => string
}

export async function race(app: App, databaseUrl: string, options: RaceOptions): Promise<RaceResult> {
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 2 })
  const processes: AppProcess[] = []
  const over = new AbortController()
  const tally: Tally = { transfers: 0, replays: 0, steps: 0, refusals: 0, made: [], sent: [], surprises: [] }
  try {
    await pool.query(TABLES)
    await pool.query(OPEN_ACCOUNTS, [ACCOUNTS, BALANCE])
    for (let count = 0; count < PROCESSES; count++) processes.push(await AppProcess.start(app, databaseUrl))
    const client = (what: string, number: number): Client => {
      // Of its own: a request is repeated as often as the kills have it.
      const place = random(options.seed, what, number, 'process')
      return { number, chance: random(options.seed, what, number), url: () => place.pick(processes).url }
    }
    const clients = Array.from({ length: CLIENTS }, (_, number) => [
      sendTransfers(client('transfers', number), tally, over.signal),
      moveInstances(client('instances', number), tally, over.signal),
      ...(app.hasForm === true ? [sendForms(client('forms', number), tally, over.signal)] : []),
    ]).flat()
    // One that fails ends the race.
    const failed = Promise.all(clients)
    await Promise.race([failed, killing(processes, tally, options)])
    over.abort()
    await failed
    const violations = [...tally.surprises, ...(await examine(pool, tally.made))]
    if (app.hasForm === true) {
      const { rows } = await pool.query<{ made: number }>(MADE, [tally.sent])
      // Some are refused: the account had too little.
      if ((rows[0]?.made ?? 0) === 0) violations.push(`none of ${tally.sent.length} forms made its transfer`)
    }
    for (const each of processes) {
      const fault = await each.stop()
      if (fault !== undefined) violations.push(fault)
    }
    return { kills: options.kills, ...tally, forms: tally.sent.length, violations }
  } catch (error) {
    const outputs = processes.map(({ output }) => output).join('\n')
    throw new Error(`${String(error)}\n${outputs}`, { cause: error })
  } finally {
    over.abort()
    await Promise.all(processes.map((each) => each.stop()))
    await pool.end()
  }
}

/** What is wrong in the database. */
export async function violationsIn(pool: pg.Pool): Promise<string[]> {
  const { rows } = await pool.query<{ what: string }>(VIOLATIONS, [ACCOUNTS.length * BALANCE])
  return rows.map(({ what }) => what)
}

async function examine(pool: pg.Pool, made: readonly string[]): Promise<string[]> {
  const deadline = performance.now() + LONGEST_DELIVERY_MS
  const violations: string[] = []
  for (;;) {
    const { rows } = await pool.query<{ transfers: number; receipts: number }>(PROGRESS)
    const { transfers = 0, receipts = 0 } = rows[0] ?? {}
    if (transfers === receipts) break
    if (performance.now() > deadline) {
      violations.push(`${transfers} transfers have ${receipts} receipts`)
      break
    }
    await delay(100)
  }
  const missing = await pool.query<{ id: string }>(MISSING, [made])
  violations.push(...missing.rows.map(({ id }) => `transfer ${id} was answered as made, and is not`))
  return [...violations, ...(await violationsIn(pool))]
}

async function killing(processes: readonly AppProcess[], tally: Tally, options: RaceOptions): Promise<void> {
  for (let kill = 0; kill <= options.kills; kill++) {
    const [transfers, steps] = [tally.transfers + options.requestsPerKill, tally.steps + options.requestsPerKill]
    while (tally.transfers < transfers || tally.steps < steps) await delay(10)
    if (kill < options.kills) await (processes[kill % processes.length] as AppProcess).killAndRestart()
  }
}

async function sendTransfers(client: Client, tally: Tally, over: AbortSignal): Promise<void> {
  const { chance, url } = client
  for (let number = 0; !over.aborted; number++) {
    const id = `${client.number}-${number}`
    const from = chance.pick(ACCOUNTS)
    const to = chance.pick(ACCOUNTS.filter((each) => each !== from))
    const body = { id, from, to, amount: 1 + (number % 7) }
    const user = chance.pick(KEYS)
    const bytes = await untilAnswered(tally, over, () => ask(`${url()}/transfers`, { user, body, key: id }))
    if (bytes === undefined) return
    if ((JSON.parse(bytes) as { moved: boolean }).moved) tally.made.push(id)
    tally.transfers++
    if (number % 5 !== 0) continue
    // The same again, at any process: the same bytes.
    const again = await untilAnswered(tally, over, () => ask(`${url()}/transfers`, { user, body, key: id }))
    if (again === undefined) return
    tally.replays++
    if (again !== bytes) tally.surprises.push(`the retry of ${id} got ${again}, not ${bytes}`)
  }
}

async function moveInstances({ chance, url }: Client, tally: Tally, over: AbortSignal): Promise<void> {
  while (!over.aborted) {
    const path = `${url()}/instances/${chance.pick(INSTANCES)}/next`
    const answered = await untilAnswered(tally, over, () => ask(path, { user: chance.pick(KEYS) }))
    if (answered !== undefined) tally.steps++
  }
}

/** Loads the page, and sends its form twice at once and a third time, each to a process that it picks at random. */
async function sendForms({ chance, url }: Client, tally: Tally, over: AbortSignal): Promise<void> {
  for (let number = 0; !over.aborted; number++) {
    const page = await untilAnswered(tally, over, () => fetch(`${url()}/`))
    if (page === undefined) return
    const fields = fieldsOf(page)
    const id = fields.get('id')
    if (id === undefined || ![...fields.keys()].some((name) => name.startsWith('$ACTION_'))) {
      throw new Error(`The page has no form of a server action:\n${page.slice(0, 2000)}`)
    }
    const from = chance.pick(ACCOUNTS)
    const filled = { from, to: chance.pick(ACCOUNTS.filter((each) => each !== from)), amount: String(1 + (number % 3)) }
    const send = (): Promise<string | undefined> =>
      untilAnswered(tally, over, () => {
        const body = new FormData()
        for (const [name, value] of new Map([...fields, ...Object.entries(filled)])) body.append(name, value)
        return fetch(`${url()}/`, { method: 'POST', body })
      })
    const answers = [...(await Promise.all([send(), send()])), await send()]
    if (answers.includes(undefined)) return
    tally.sent.push(id)
  }
}

/** The names and values of the inputs of a page. */
function fieldsOf(page: string): Map<string, string> {
  const inputs = page.match(/<input[^>]*>/g) ?? []
  const attribute = (input: string, name: string): string =>
    new RegExp(` ${name}="([^"]*)"`).exec(input)?.[1]?.replaceAll('&quot;', '"').replaceAll('&amp;', '&') ?? ''
  return new Map(inputs.map((input) => [attribute(input, 'name'), attribute(input, 'value')]))
}

interface Asked {
  readonly user: string
  readonly key?: string
  readonly body?: unknown
}

function ask(url: string, { user, key, body }: Asked): Promise<Response> {
  return fetch(url, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${user}`,
      ...(key !== undefined && { 'idempotency-key': key }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
}

/** Repeats the request until it is done. Undefined: the race is over. */
async function untilAnswered(
  tally: Tally,
  over: AbortSignal,
  send: () => Promise<Response>,
): Promise<string | undefined> {
  while (!over.aborted) {
    try {
      const response = await send()
      const text = await response.text()
      if (response.ok) return text
      if (response.status !== 409 && response.status !== 503) {
        // A process that is killed can lose its own connections first.
        if (response.status < 500) tally.surprises.push(`an answer ${response.status}: ${text.slice(0, 500)}`)
      }
      tally.refusals++
    } catch {
      // The connection was cut: the outcome is unknown.
      tally.refusals++
    }
    await delay(5)
  }
  return undefined
}
