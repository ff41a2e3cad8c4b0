import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'
import { afterAll } from 'vitest'
import type { TestDatabase } from '../../tools/server/testDatabase.ts'
import type { Desk, Finding, System } from '../desk.ts'
import { prepare } from '../prepare.ts'
import { type Service, type ServicePlan, startService } from '../service.ts'

export interface Answer {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  /** Empty where the answer is no JSON. */
  readonly body: Readonly<Record<string, unknown>>
}

const ATTEMPTS = 50

/** Two desks on one database, asked over HTTP as their clients do. */
export class Desks {
  readonly pool: pg.Pool
  readonly services: readonly Service[]
  /** What they have said. */
  readonly said: readonly string[]
  #turn = 0

  private constructor(pool: pg.Pool, services: readonly Service[], said: readonly string[]) {
    this.pool = pool
    this.services = services
    this.said = said
  }

  /** Closed after the last test of the file. */
  static async start(
    database: TestDatabase,
    systems: readonly System[],
    plan: Partial<ServicePlan> = {},
    count = 2,
  ): Promise<Desks> {
    await prepare(database.url, systems)
    const said: string[] = []
    const services = await Promise.all(
      Array.from({ length: count }, (_, index) =>
        startService(
          {
            url: database.url,
            // None of these systems asks it.
            exchangeUrl: 'http://127.0.0.1:1',
            processName: `desk-${index + 1}`,
            host: '127.0.0.1',
            port: 0,
            poolSize: 8,
            waitMs: 10_000,
            operator: false,
            sink: { name: 'local', url: '' },
            log: false,
            ...plan,
          },
          (line) => said.push(line),
          systems,
        ),
      ),
    )
    const pool = new pg.Pool({ connectionString: database.url, max: 3 })
    afterAll(async () => {
      await Promise.all(services.map((service) => service.close()))
      await pool.end()
    })
    return new Desks(pool, services, said)
  }

  /** What the routes of one of them work with. */
  desk(index: number): Desk {
    return (this.services[index] as Service).desk
  }

  /** One after the other. */
  origin(index = this.#turn++): string {
    return `http://127.0.0.1:${(this.services[index % this.services.length] as Service).port}`
  }

  async ask(path: string, init: RequestInit = {}, index?: number): Promise<Answer> {
    const response = await fetch(`${this.origin(index)}${path}`, init)
    const text = await response.text()
    const isJson = response.headers.get('content-type')?.includes('json') === true
    return {
      status: response.status,
      headers: response.headers,
      text,
      body: isJson ? (JSON.parse(text) as Record<string, unknown>) : {},
    }
  }

  get(path: string): Promise<Answer> {
    return this.ask(path)
  }

  /** As a client does: if nothing was done because all were busy, it asks again. */
  async post(path: string, body?: unknown, { key, desk }: { key?: string; desk?: number } = {}): Promise<Answer> {
    const headers = { 'content-type': 'application/json', ...(key !== undefined && { 'idempotency-key': key }) }
    const init = { method: 'POST', headers, ...(body !== undefined && { body: JSON.stringify(body) }) }
    for (let attempt = 1; ; attempt++) {
      const answer = await this.ask(path, init, desk)
      const { code, detail } = answer.body
      const wasBusy = code === 'unavailable' && typeof detail === 'string' && detail.includes('Nothing was done')
      if (!wasBusy || attempt === ATTEMPTS) return answer
      await delay(100)
    }
  }

  /** The same request to both desks at the same moment, with a key of its own. */
  postTwice(path: string, body?: unknown): Promise<[Answer, Answer]> {
    const key = randomUUID()
    return Promise.all([this.post(path, body, { key, desk: 0 }), this.post(path, body, { key, desk: 1 })])
  }
}

/** What a system's check finds after the SQL, which is undone. */
export async function foundAfter(pool: pg.Pool, system: System, sql: string): Promise<readonly Finding[]> {
  const client = await pool.connect()
  try {
    await client.query('BEGIN')
    await client.query(sql)
    return await system.check(client)
  } finally {
    await client.query('ROLLBACK')
    client.release()
  }
}

/** Everything that was found wrong. */
export function violations(findings: readonly Finding[]): string[] {
  return findings.flatMap((finding) => finding.violations.map((each) => `${finding.invariant}: ${each}`))
}
