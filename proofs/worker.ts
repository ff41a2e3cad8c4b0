/**
 * A worker: one process among several that do what the scenarios say, as fast as they can, until the coordinator says that the round is
 * over; or killed, stopped, cut off. What it does is chosen by the seed. Its standard input is its lifeline.
 */
import { setMaxListeners } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { CommitOutcomeUnknownError } from 'pg-lockstep'
import { on } from 'pg-lockstep/observe'
import type { Entry } from './history.ts'
import type { FromWorker, RoundPlan, ToWorker, WorkerPlan } from './messages.ts'
import { openClients } from './clients.ts'
import { scenarios } from './scenarios/index.ts'
import type { Operation, Scenario, ScenarioForm, WorkerTools } from './scenarios/scenario.ts'
import { random } from './seed.ts'
import { setClock } from './faults/clock.ts'
import { machineMicros } from './machineClock.ts'

const plan = JSON.parse(process.argv[2] as string) as WorkerPlan
const send = (message: FromWorker): void => void process.send?.(message)

let questions = 0
const answers = new Map<number, (answer: unknown) => void>()
let timid = false

/** Asks the world outside of a round. It always answers, if it is there. */
function ask<Answer>(round: number, service: string, question: unknown): Promise<Answer> {
  const number = ++questions
  return new Promise((resolve) => {
    answers.set(number, resolve as (answer: unknown) => void)
    send({ ask: number, round, service, question })
  })
}

/** One round in this worker. */
class Round {
  readonly #plan: RoundPlan
  readonly #clients
  readonly #operations = new AbortController()
  readonly #beside = new AbortController()
  readonly #lanes: Promise<void>[]
  readonly #besides: Promise<void>[]
  #draining = false

  constructor(round: RoundPlan) {
    this.#plan = round
    // Many operations wait with it at the same time.
    setMaxListeners(0, this.#operations.signal)
    this.#clients = openClients(plan, round.form)
    const chosen = scenarios.filter(({ name }) => round.scenarios.includes(name))
    const plays = chosen.map((scenario) => ({
      scenario,
      usual: scenario.play[round.form](this.#hands('usual', scenario)),
      timid: scenario.play[round.form](this.#hands('timid', scenario)),
    }))
    this.#besides = plays.map(({ usual }) => this.#goOn(usual))
    this.#lanes = plays.flatMap(({ scenario, ...both }) =>
      Array.from({ length: round.lanes ?? scenario.lanes }, (_, lane) => this.#lane(scenario, both, lane)),
    )
  }

  #hands(which: 'usual' | 'timid', scenario: Scenario): WorkerTools {
    const { number, startedAt, ttlMs, lanes = scenario.lanes } = this.#plan
    return {
      ...this.#clients[which],
      signal: this.#operations.signal,
      ttlMs,
      round: number,
      lanes,
      elapsedMs: () => (machineMicros() - startedAt) / 1000,
      now: machineMicros,
      ask: (service, question) => ask(number, service, question),
    }
  }

  /** What a supervisor does: a dispatcher that could not begin is begun again. */
  async #goOn(play: ScenarioForm): Promise<void> {
    while (play.beside !== undefined && !this.#beside.signal.aborted) {
      await play.beside(this.#beside.signal).catch(() => sleep(100))
    }
  }

  async #lane(scenario: Scenario, plays: { usual: ScenarioForm; timid: ScenarioForm }, lane: number): Promise<void> {
    const { seed, number: round, form, beatMs, startedAt } = this.#plan
    for (let count = 0; !this.#draining; count++) {
      const chance = random(seed, round, plan.by, scenario.name, lane, count)
      const play = timid ? plays.timid : plays.usual
      const id = `r${round}.${plan.by}.${scenario.name}.${lane}.${count}`
      const operation = operationOf(scenario.name, id, play.keyFor(chance), lane, chance)
      operation.tell('asked')
      try {
        const answer = await play.operate(operation)
        operation.tell('done', typeof answer === 'object' ? answer : answer === undefined ? {} : { value: answer })
      } catch (error) {
        // Code by hand cannot know the outcome.
        const known = form === 'lockstep' && !isUnknown(error)
        operation.tell(known ? 'failed' : 'unknown', { note: noteOf(error) })
      }
      const sinceMs = (machineMicros() - startedAt) / 1000
      await sleep(beatMs === undefined ? chance.below(12) : beatMs - (sinceMs % beatMs))
    }
  }

  /** No new operations; those in progress come to their end. */
  async drain(): Promise<void> {
    this.#draining = true
    this.#operations.abort()
    await Promise.all(this.#lanes)
  }

  /** Everything is released. */
  async close(): Promise<number> {
    this.#beside.abort()
    await Promise.allSettled(this.#besides)
    return this.#clients.close()
  }
}

function operationOf(scenario: string, id: string, key: string, lane: number, chance: Operation['random']): Operation {
  const tell = (entry: Pick<Entry, 'what' | 'at'> & Partial<Entry>): void =>
    send({ entry: { by: plan.by, scenario, op: id, key, ...entry } })
  return {
    id,
    key,
    lane,
    random: chance,
    tell: (what, parts) => tell({ what, at: machineMicros(), ...parts }),
    activeSince: (at, parts) => tell({ what: 'active', at, ...parts }),
  }
}

function isUnknown(error: unknown): boolean {
  return error instanceof CommitOutcomeUnknownError || (error instanceof Error && isUnknown(error.cause))
}

/** The code first, the reason's where there is one. */
function noteOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const { code } = error as { code?: string }
  const reason = error.cause instanceof Error ? ` (${noteOf(error.cause)})` : ''
  return `${code === undefined ? '' : `${code} `}${error.message}`.slice(0, 160) + reason
}

// What the server has ended and was tried again has been ended all the same.
on('transaction.retried', ({ keys, reason }) => {
  if (reason !== '40P01' && reason !== '40001') return
  const [key = 'rows'] = keys
  const note = `${reason}, tried again`
  send({ entry: { at: machineMicros(), by: plan.by, scenario: scenarioOf(key), op: '', what: 'failed', key, note } })
})

/** Whose keys begin like this; rows without a key are the transfers'. */
function scenarioOf(key: string): string {
  return (
    { ProveWallet: 'wallet', ProveAccount: 'combine', ProvePosition: 'position', ProveBid: 'bids' }[
      key.split(':')[0] ?? ''
    ] ?? 'transfers'
  )
}

// postgres.js asks for its types on its first connection and does not handle the error: that one is not ours.
process.on('unhandledRejection', (error) => {
  if (!String((error as { query?: string } | undefined)?.query).includes('pg_catalog.pg_type')) throw error
})

// An interrupt at the terminal reaches all processes: the coordinator decides what follows.
process.on('SIGINT', () => undefined)

/** Those in progress, by their numbers. */
const rounds = new Map<number, Round>()

process.on('message', (message: ToWorker) => {
  if ('answer' in message) {
    answers.get(message.answer)?.(message.value)
    answers.delete(message.answer)
  } else if ('round' in message) rounds.set(message.round.number, new Round(message.round))
  else if ('drain' in message) void drain(message.drain)
  else if ('close' in message) void close(message.close)
  else if ('clockMs' in message) setClock(message.clockMs)
  else timid = message.timid
})
send({ ready: true })

async function drain(number: number): Promise<void> {
  await rounds.get(number)?.drain()
  send({ drained: number })
}

async function close(number: number): Promise<void> {
  const connectionsOut = (await rounds.get(number)?.close()) ?? 0
  rounds.delete(number)
  send({ closed: number, connectionsOut })
}
