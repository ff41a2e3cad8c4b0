import { setTimeout as sleep } from 'node:timers/promises'
import { type Proxy, type ProxyConnection, startProxy } from 'pg-lockstep/testing'
import { type KillableProcess, startProcess } from '../../faults/killableProcess.ts'
import { until } from '../../until.ts'
import type { SinkNews, SinkProcessOptions } from '../processes/sinkProcess.ts'

/** A dispatcher in a process of its own, with a way of its own to the broker. */
class Member {
  readonly proxy: Proxy
  readonly process: KillableProcess
  /** Batches that are not answered. */
  readonly open = new Map<number, readonly (readonly [key: string, seq: number])[]>()
  /** Per key, the last number that it has sent. */
  readonly sentUpTo = new Map<string, number>()
  readonly answered = new Map<number, readonly string[]>()

  constructor(proxy: Proxy, options: SinkProcessOptions) {
    this.proxy = proxy
    this.process = startProcess(new URL('../processes/sinkProcess.ts', import.meta.url), [JSON.stringify(options)])
    this.process.child.on('message', (news: SinkNews) => {
      if ('sending' in news) {
        this.open.set(news.sending, news.events)
        return
      }
      const events = this.open.get(news.answered) ?? []
      this.open.delete(news.answered)
      this.answered.set(news.answered, news.answers)
      events.forEach(([key, seq], place) => {
        if (news.answers[place] === 'sent') this.sentUpTo.set(key, Math.max(seq, this.sentUpTo.get(key) ?? 0))
      })
    })
  }
}

/** How the batch is caught: its bytes are kept on the way until afterwards, or continue while their sender stands still. */
export type CaughtBatch = 'held' | 'forwarded'

const LIMIT_MS = 120_000
/** So far must the other one be beyond the batch that was caught. */
const BEYOND = 3
/** Long enough for what is in the pipes when a process is stopped. */
const SETTLE_MS = 40

/** Two dispatchers that share the work. */
export class Pair {
  readonly #members: readonly Member[]
  readonly #mark: Buffer

  private constructor(members: readonly Member[], mark: string) {
    this.#members = members
    this.#mark = Buffer.from(mark)
  }

  /** `mark`: what is in the bytes of every batch. */
  static async start(options: SinkProcessOptions, mark: string): Promise<Pair> {
    const [host, port] = options.address.split(':') as [string, string]
    const members = [0, 1].map(async () => {
      const proxy = await startProxy({ targetHost: host, targetPort: Number(port) })
      return new Member(proxy, { ...options, address: `127.0.0.1:${proxy.port}` })
    })
    return new Pair(await Promise.all(members), mark)
  }

  /**
   * Stops one of them in the middle of a batch, has the other take over and continue, and lets the first one continue. The answers that
   * it got to its batch in the end.
   */
  async strike(how: CaughtBatch): Promise<readonly string[]> {
    for (;;) {
      const { victim, connection } = await this.#catch(how)
      await sleep(SETTLE_MS)
      const [batch] = [...victim.open]
      if (batch === undefined) {
        // It was through after all.
        victim.process.continue()
        connection.release()
        continue
      }
      const [number, events] = batch
      const other = this.#members.find((member) => member !== victim) as Member
      const goals = new Map<string, number>()
      for (const [key, seq] of events) goals.set(key, Math.max(seq + BEYOND, goals.get(key) ?? 0))
      await must('the other dispatcher is beyond the batch', () =>
        [...goals].every(([key, seq]) => (other.sentUpTo.get(key) ?? 0) >= seq),
      )
      victim.process.continue()
      connection.release()
      await must('the batch is answered', () => victim.answered.has(number))
      return victim.answered.get(number) ?? []
    }
  }

  /** Stops the first sender, at the moment in which its bytes come by. */
  #catch(how: CaughtBatch): Promise<{ victim: Member; connection: ProxyConnection }> {
    return new Promise((resolve) => {
      let caught = false
      for (const victim of this.#members) {
        victim.proxy.onClientData((chunk, connection) => {
          if (caught || !chunk.includes(this.#mark)) return 'forward'
          caught = true
          victim.process.stop()
          resolve({ victim, connection })
          return how === 'held' ? 'hold' : 'forward'
        })
      }
    })
  }

  async close(): Promise<void> {
    await Promise.all(this.#members.map(({ process }) => process.kill()))
    await Promise.all(this.#members.map(({ proxy }) => proxy.close()))
  }
}

async function must(what: string, holds: () => boolean): Promise<void> {
  if (!(await until(holds, LIMIT_MS))) throw new Error(`after ${LIMIT_MS} ms still not: ${what}`)
}
