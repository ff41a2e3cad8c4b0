import { randomUUID } from 'node:crypto'
import type { Finding } from '../../desk.ts'
import { DEFAULT_EXCHANGE, type ExchangeName, EXCHANGES } from '../../exchange/index.ts'
import { sendOnce } from '../sendOnce.ts'
import type { Outcome } from '../client.ts'
import { HALTED_EXECUTIONS, POSITIONS } from '../load.sql.ts'
import { finding } from '../memory.ts'
import type { Durations } from '../tally.ts'
import { names, type Sender, type SenderContext } from './sender.ts'

export interface SignalDurations {
  readonly alone: Durations
  /** These wait for each other, and for closings, before it is their turn. */
  readonly hot: Durations
}

/** What was said of a position. */
interface Said {
  /** To how many callers it was said that they created it. */
  created: number
  closed: boolean
}

/** Signals, closings, and a person who trades by hand. */
export class PositionSender implements Sender {
  readonly system = 'positions'
  readonly weight = 15
  /** Of signals that were answered, while the load test measures. */
  durations: SignalDurations | undefined
  readonly #context: SenderContext
  readonly #mark: string
  readonly #hot: readonly string[]
  readonly #cold: readonly string[]
  readonly #said = new Map<string, Said>()

  constructor(context: SenderContext) {
    this.#context = context
    this.#mark = context.prefix.toUpperCase()
    this.#hot = names(`${this.#mark}H`, 4)
    this.#cold = names(`${this.#mark}C`, 60)
  }

  async prepare(): Promise<void> {}

  async send(): Promise<void> {
    const { random, contention, exchangeUrl } = this.#context
    const kind = random.next()
    if (kind < 0.05) return this.#halted()
    if (kind < 0.1) return this.#byHand(exchangeUrl)
    const symbol = random.pick(random.chance(contention) ? this.#hot : this.#cold)
    const exchange = random.pick(EXCHANGES)
    return kind < 0.35 ? this.#close(symbol, exchange) : this.signal(symbol, exchange)
  }

  /** Opens a position, or gets the one that is open. */
  async signal(symbol: string, exchange: ExchangeName = DEFAULT_EXCHANGE): Promise<void> {
    const { client, random } = this.#context
    const began = performance.now()
    const body = { symbol, exchange, side: random.pick(['long', 'short']), quantity: random.whole(1, 100) }
    const outcome = await client.post('positions', {
      path: '/positions',
      body,
      idempotencyKey: randomUUID(),
    })
    if (outcome.kind !== 'acknowledged') return
    this.durations?.[this.#hot.includes(symbol) ? 'hot' : 'alone'].add(performance.now() - began)
    const said = this.#of(outcome)
    if (outcome.status === 201) said.created++
  }

  /** A name for a symbol that no other request asks for. */
  freshSymbols(count: number): string[] {
    return names(`${this.#mark}F`, count)
  }

  async #close(symbol: string, exchange: ExchangeName): Promise<void> {
    const path = `/positions/${symbol}/close?exchange=${exchange}`
    const sending = { path, idempotencyKey: randomUUID() }
    const outcome = await this.#context.client.post('positions', sending)
    if (outcome.kind === 'acknowledged') this.#of(outcome).closed = true
  }

  /** What the exchange does not trade. */
  async #halted(): Promise<void> {
    const body = { symbol: `HALT${this.#mark}`, side: 'long', quantity: 1 }
    const outcome = await this.#context.client.post('positions', { path: '/positions', body })
    if (outcome.kind === 'acknowledged') throw new Error('the exchange has traded what it does not trade')
  }

  async #byHand(exchangeUrl: string): Promise<void> {
    const { random } = this.#context
    const body = { symbol: random.pick(this.#cold), side: random.pick(['buy', 'sell']), quantity: random.whole(1, 20) }
    const url = `${exchangeUrl}/${random.pick(EXCHANGES)}/manual-trades`
    await sendOnce({ method: 'POST', url, body, timeoutMs: 5000 })
  }

  #of({ body }: Outcome & { kind: 'acknowledged' }): Said {
    const id = String(body['id'])
    const said = this.#said.get(id) ?? { created: 0, closed: false }
    this.#said.set(id, said)
    return said
  }

  async compare(pool: Parameters<Sender['compare']>[0]): Promise<Finding[]> {
    const { rows } = await pool.query<{ id: string; status: string }>(POSITIONS, [this.#mark])
    const halted = (await pool.query<{ id: string }>(HALTED_EXECUTIONS, [this.#mark])).rows
    const status = new Map(rows.map((row) => [row.id, row.status]))
    const said = [...this.#said]
    return [
      finding('every acknowledged position is there', said, (id) =>
        ['active', 'closed', 'closing'].includes(status.get(id) ?? '')
          ? undefined
          : `${id} is ${status.get(id) ?? 'not there'}`,
      ),
      finding('at most one caller was acknowledged as the creator of a position', said, (id, { created }) =>
        created <= 1 ? undefined : `${created} callers were acknowledged as the creator of ${id}`,
      ),
      finding(
        'every position whose closing was acknowledged is closed',
        said.filter(([, { closed }]) => closed),
        (id) => (status.get(id) === 'closed' ? undefined : `${id} is ${status.get(id) ?? 'not there'}`),
      ),
      {
        invariant: 'the exchange has traded nothing that it refused',
        looked: this.#context.client.tally('positions').refused,
        violations: halted.map(({ id }) => `${id} was executed`),
      },
    ]
  }
}
