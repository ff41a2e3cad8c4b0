import { once as event } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { goal, type Goal, type ResultRow } from '../../tools/judge/report.ts'
import { type KillableProcess, startProcess } from '../faults/killableProcess.ts'
import type { ExternalAnswer } from './processes/onceExternalProcess.ts'
import { DRIVERS, type Lab } from './lab.ts'
import type { ReportProgress } from './attack.ts'
import { ACTING, CREATE_LONG, LEFT_OPENING, ORDERED, TWO_ORDERS } from './once.sql.ts'

export interface ExternalSize {
  readonly longKeys: number
  /** How many creators must have been struck while they were at the exchange. */
  readonly strikes: number
}

const PROCESSES = 4
/** How many symbols are being opened at a time. */
const AT_A_TIME = 12
/** More than are asked for, until enough has been struck. */
const MAX_ROUNDS = 60
/** Longer than the lease. */
const STOPPED_MS = 2000
const STRIKE_EVERY_MS = 300

/**
 * Four processes open positions at an exchange, all of them the same ones; creators are killed, or stopped past their lease and
 * continued, while they are at the exchange. For each position the exchange has seen one order id, all callers got that one,
 * and nothing is left in opening. With a planted bug, a new id at take-over, the exchange must see two.
 */
export async function playExternal(
  lab: Lab,
  size: ExternalSize,
  reportProgress: ReportProgress,
): Promise<{ row: ResultRow; goals: readonly Goal[] }> {
  const ours = await play(lab, size.longKeys, size.strikes, false, reportProgress)
  const careless = await play(lab, 0, 0, true, reportProgress)
  return {
    row: { form: 'onceExternal', ...ours },
    goals: [
      goal('onceExternal: creators struck at the exchange', ours.killed + ours.stopped, '>=', size.strikes),
      goal(
        'onceExternal: keys of which the exchange has seen one id',
        ours['orders seen'] - ours['two orders'],
        '=',
        ours.keys,
      ),
      goal('onceExternal: keys with two orders', ours['two orders'], '=', 0),
      goal('onceExternal: keys whose callers got different ids', ours['different ids'], '=', 0),
      goal('onceExternal: keys with more than one creator', ours['two creators'], '=', 0),
      goal('onceExternal: rows left in opening', ours['left in opening'], '=', 0),
      goal('control, a new id at take-over: keys with two orders', careless['two orders'], '>=', 1),
    ],
  }
}

interface Counts {
  keys: number
  killed: number
  stopped: number
  'orders seen': number
  'two orders': number
  'different ids': number
  'two creators': number
  'left in opening': number
}

async function play(
  lab: Lab,
  keys: number,
  strikes: number,
  careless: boolean,
  reportProgress: ReportProgress,
): Promise<Counts> {
  await lab.admin.query(CREATE_LONG)
  const crew = new Crew(lab, careless)
  const symbols: string[] = []
  const counts = { killed: 0, stopped: 0 }
  const number = async (question: string): Promise<number> =>
    (await lab.admin.query<{ n: number }>(question)).rows[0]?.n ?? -1
  // The planted bug is found when somebody was struck between its order and its end.
  const enough = async (): Promise<boolean> =>
    careless ? (await number(TWO_ORDERS)) > 0 : symbols.length >= keys && counts.killed + counts.stopped >= strikes
  const strikesAreOver = strikeUntil(lab, crew, counts)
  try {
    await crew.start()
    for (let round = 0; round < MAX_ROUNDS && !(await enough()); round++) {
      reportProgress(`once: onceExternal${careless ? ' with the planted bug' : ''}, ${symbols.length} of ${keys} keys`)
      const next = Array.from({ length: AT_A_TIME }, (_, place) => `L${round}-${place}`)
      symbols.push(...next)
      await Promise.all(next.map((symbol) => crew.openEverywhere(symbol)))
    }
    return {
      keys: symbols.length,
      ...counts,
      'orders seen': await number(ORDERED),
      'two orders': await number(TWO_ORDERS),
      'different ids': symbols.filter((symbol) => crew.idsOf(symbol).size !== 1).length,
      'two creators': symbols.filter((symbol) => crew.creatorsOf(symbol) > 1).length,
      'left in opening': await number(LEFT_OPENING),
    }
  } finally {
    crew.over = true
    await crew.kill()
    await strikesAreOver
  }
}

/** The processes; one that is killed is replaced, and what it had not answered is asked again. */
class Crew {
  over = false
  readonly #lab: Lab
  readonly #careless: boolean
  readonly #members: { process: KillableProcess; ready: Promise<void>; generation: number }[] = []
  readonly #answers = new Map<string, ExternalAnswer[]>()
  readonly #waiting = new Map<string, (answer: ExternalAnswer) => void>()
  readonly #open: Set<string>[] = []

  constructor(lab: Lab, careless: boolean) {
    this.#lab = lab
    this.#careless = careless
  }

  async start(): Promise<void> {
    for (let number = 0; number < PROCESSES; number++) {
      this.#open.push(new Set())
      this.#members.push(this.#begin(number, 0))
    }
    await Promise.all(this.#members.map(({ ready }) => ready))
  }

  #begin(number: number, generation: number): { process: KillableProcess; ready: Promise<void>; generation: number } {
    const args = [
      DRIVERS[number % 2] as string,
      this.#lab.url('direct'),
      `${number}`,
      ...(this.#careless ? ['careless'] : []),
    ]
    const process = startProcess(new URL('processes/onceExternalProcess.ts', import.meta.url), args)
    const ready = event(process.child, 'message').then(() => {
      process.child.on('message', (answer: ExternalAnswer & { error?: string }) => {
        // A lease that was lost three times, or a connection that went with a fault: the caller asks again.
        if (answer.error === undefined) this.#waiting.get(`${number} ${answer.symbol}`)?.(answer)
        else process.child.send(answer.symbol)
      })
    })
    return { process, ready, generation }
  }

  /** Has all processes open it at once, and waits for all answers. */
  async openEverywhere(symbol: string): Promise<void> {
    const answers = await Promise.all(this.#members.map((_, number) => this.#ask(number, symbol)))
    this.#answers.set(symbol, answers)
  }

  #ask(number: number, symbol: string): Promise<ExternalAnswer> {
    return new Promise((resolve) => {
      this.#open[number]?.add(symbol)
      this.#waiting.set(`${number} ${symbol}`, (answer) => {
        this.#open[number]?.delete(symbol)
        resolve(answer)
      })
      this.#members[number]?.process.child.send(symbol)
    })
  }

  async killAndReplace(number: number): Promise<void> {
    const member = this.#members[number]
    if (member === undefined) return
    await member.process.kill()
    if (this.over) return
    const next = this.#begin(number, member.generation + 1)
    this.#members[number] = next
    await next.ready
    for (const symbol of this.#open[number] ?? []) next.process.child.send(symbol)
  }

  async stopAndContinue(number: number): Promise<void> {
    const { process } = this.#members[number] ?? {}
    process?.signal('SIGSTOP')
    await sleep(STOPPED_MS)
    process?.signal('SIGCONT')
  }

  idsOf(symbol: string): ReadonlySet<string> {
    return new Set((this.#answers.get(symbol) ?? []).map(({ id }) => id))
  }

  creatorsOf(symbol: string): number {
    return (this.#answers.get(symbol) ?? []).filter(({ created }) => created).length
  }

  async kill(): Promise<void> {
    await Promise.all(this.#members.map(({ process }) => process.kill()))
  }
}

/** Strikes processes that have a position in opening: killed or stopped, in turn. */
async function strikeUntil(lab: Lab, crew: Crew, counts: { killed: number; stopped: number }): Promise<void> {
  while (!crew.over) {
    await sleep(STRIKE_EVERY_MS * (0.5 + Math.random()))
    const { rows } = await lab.admin.query<{ process: string }>(ACTING)
    if (rows[0] === undefined || crew.over) continue
    const number = Number(rows[0].process)
    if ((counts.killed + counts.stopped) % 2 === 0) {
      counts.killed++
      await crew.killAndReplace(number)
    } else {
      counts.stopped++
      await crew.stopAndContinue(number)
    }
  }
}
