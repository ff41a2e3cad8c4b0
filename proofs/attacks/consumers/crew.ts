import { once } from 'node:events'
import { type KillableProcess, startProcess } from '../../faults/killableProcess.ts'
import { newSeedFrom, type Random } from '../../seed.ts'
import type { ConsumerNews, ConsumerProcessOptions } from '../processes/consumerProcess.ts'

const PROCESS = new URL('../processes/consumerProcess.ts', import.meta.url)

interface Member {
  readonly process: KillableProcess
  /** Where it receives webhooks. */
  port: number | undefined
  /** Its end is no surprise. */
  leaving: boolean
}

/** The processes that run one consumer. */
export class Crew {
  readonly #random: Random
  /** Of what the processes draw: each continues with its own number. */
  readonly #seed: number
  #joined = 0
  #options: Omit<ConsumerProcessOptions, 'seed'> | undefined
  #members: Member[] = []
  #turn = 0
  #surprises = 0

  constructor(random: Random) {
    this.#random = random
    this.#seed = newSeedFrom(random)
  }

  /** Those that ended though nothing had ended them. */
  get surprises(): number {
    return this.#surprises
  }

  /** The port of each process in turn. */
  readonly port = (): number | undefined => {
    const ports = this.#members.flatMap(({ port }) => port ?? [])
    return ports[this.#turn++ % Math.max(1, ports.length)]
  }

  async start(options: Omit<ConsumerProcessOptions, 'seed'>, count: number): Promise<void> {
    this.#options = options
    await Promise.all(Array.from({ length: count }, () => this.#join()))
  }

  /** kill -9 of one; another takes its place. */
  async kill(): Promise<void> {
    await this.#leave().process.kill()
    await this.#join()
  }

  /** SIGSTOP of one, and SIGCONT when the work is done. */
  async whileStopped(work: () => Promise<void>): Promise<void> {
    const { process } = this.#random.pick(this.#members)
    process.stop()
    try {
      await work()
    } finally {
      process.continue()
    }
  }

  /** One more comes, then one leaves, when it has ended what it has begun. Whether it did. */
  async change(limitMs: number): Promise<boolean> {
    await this.#join()
    return end(this.#leave(), limitMs)
  }

  /** All are asked to leave. How many did not. */
  async stop(limitMs: number): Promise<number> {
    const all = this.#members.map(() => this.#leave())
    const ended = await Promise.all(all.map((member) => end(member, limitMs)))
    return ended.filter((well) => !well).length
  }

  async killAll(): Promise<void> {
    await Promise.all(this.#members.map(() => this.#leave().process.kill()))
  }

  async #join(): Promise<void> {
    const options = { ...this.#options, seed: this.#seed + this.#joined++ }
    const process = startProcess(PROCESS, [JSON.stringify(options)])
    const member: Member = { process, port: undefined, leaving: false }
    this.#members.push(member)
    const ended = once(process.child, 'exit').then(() => {
      if (!member.leaving) this.#surprises++
      return Promise.reject(new Error('A process of the consumer has ended before it ran.'))
    })
    const running = once(process.child, 'message') as Promise<[ConsumerNews]>
    const [{ port }] = await Promise.race([running, ended])
    ended.catch(() => undefined)
    member.port = port
  }

  #leave(): Member {
    const member = this.#random.pick(this.#members)
    member.leaving = true
    this.#members = this.#members.filter((each) => each !== member)
    return member
  }
}

async function end({ process: { child } }: Member, limitMs: number): Promise<boolean> {
  if (child.exitCode !== null) return false
  const exited = once(child, 'exit') as Promise<[number | null]>
  child.send('stop')
  const tooLong = setTimeout(() => child.kill('SIGKILL'), limitMs)
  const [code] = await exited
  clearTimeout(tooLong)
  return code === 0
}
