import type { Connection, Driver } from './connection.ts'
import { PROBE, waitingBackends } from './postgres.sql.ts'
import { SilenceWatch } from './silenceWatch.ts'

/** A connection of a pool that may have something on its way. */
export interface Suspect {
  /** What stays the same as long as the connection is there. */
  readonly id: object
  /** What stays the same as long as the same question is unanswered, where the driver shows it. */
  readonly question?: unknown
  /** Of the protocol; undefined while it is being opened. */
  readonly pid: number | undefined
  /**
   * - `opening`: it is being opened;
   * - `asked`: a question is on its way;
   * - `held`: a caller has it, and perhaps only thinks.
   */
  readonly state: 'opening' | 'asked' | 'held'
  /** Of one that is held: sends what changes nothing, and resolves when it is answered. */
  poke?(): Promise<void>
  /** Closes it without another word: what waits on it fails. */
  end(): void
}

/** What a driver shows of its pool. */
export interface RecoverablePool {
  readonly driver: Driver
  /** How many connections Lockstep has. */
  lentCount(): number
  /** All but the idle ones; or only those that Lockstep has. */
  suspects(whose: 'all' | 'ours'): readonly Suspect[]
  /** A connection outside of the pool, which may have no place to spare. */
  beside(withinMs: number): Promise<Connection>
  /** Whether that one is kept: then it may have gone silent as well. */
  readonly keepsBeside: boolean
  /** Whether all connections lead to one server, so that one that it does not know is gone. */
  readonly hasOneServer: boolean
}

interface Sighting extends Pick<Suspect, 'pid' | 'state' | 'question'> {
  /** From when on nothing is known of it. */
  since: number
  suspect: Suspect
  /** When it was poked, and not answered since. */
  pokedAt?: number | undefined
  ended?: boolean
}

/** An idle connection that is alive answers much sooner. To close one that is not costs its next user a connect. */
const IDLE_ANSWER_MS = 1000
/** Each look is a fraction of the silence. */
const LOOKS_PER_SILENCE = 5
/** For this multiple of `silenceMs` after a connection turned out to be dead, all others are checked. */
const SILENCES_ACTIVE = 4

/**
 * Brings a pool back after a network that was silent. Nothing closes the sockets of such a time: neither driver notices that they are
 * dead, and their places in the pool are taken until TCP gives up, after a quarter of an hour, or forever.
 *
 * Messages of Lockstep's own are answered soon, or the connection is dead: a SilenceWatch sees to that. This class sees to all others.
 *
 * - **Idle ones** are tried, all at once, when another one did not answer.
 * - **Those that are being opened** for longer than the silence are given up.
 * - **Those with a statement of a caller's** cannot be judged from here: it may only be slow. So the server is asked, through a connection
 *   beside the pool. Where it waits for the client as long as the client waits for it, or does not know the connection, nothing can come
 *   any more: the connection is closed, and its user gets the error of a lost connection. Behind a pooler, which shows other process
 *   ids, no connection is judged.
 *
 * Those in Lockstep's transactions are looked at all the time; those of the pool's other users while a caller of Lockstep waits for a
 * connection, and for a while after one did not answer or was closed.
 */
export class PoolRecovery {
  readonly #pool: RecoverablePool
  #silenceMs: number
  #timer: NodeJS.Timeout | undefined
  readonly #waiting = new Set<object>()
  #activeUntil = 0
  #sightings = new Map<object, Sighting>()
  #trying = false
  #judging = false
  #triedBeside = false

  constructor(pool: RecoverablePool, silenceMs: number) {
    this.#pool = pool
    this.#silenceMs = silenceMs
  }

  /** Two Locksteps on one pool: the one that is less patient counts. */
  within(silenceMs: number): void {
    this.#silenceMs = Math.min(this.#silenceMs, silenceMs)
  }

  /** A connection did not answer. */
  noteSilence(): void {
    this.#activeUntil = performance.now() + SILENCES_ACTIVE * this.#silenceMs
    this.#tryIdle()
    this.#schedule()
  }

  /** Lockstep has taken a connection. */
  noteLent(): void {
    if (this.#timer === undefined) this.#schedule()
  }

  /** Has the pool looked at as long as the promise is pending, a caller's wait for a connection. */
  whileWaiting<T>(pending: Promise<T>): Promise<T> {
    const waiter = {}
    this.#waiting.add(waiter)
    const forget = (): void => void this.#waiting.delete(waiter)
    pending.then(forget, forget)
    this.#schedule()
    return pending
  }

  #schedule(): void {
    this.#timer ??= setTimeout(() => this.#look(), this.#silenceMs / LOOKS_PER_SILENCE).unref()
  }

  #look(): void {
    this.#timer = undefined
    const now = performance.now()
    const hasReason = this.#waiting.size > 0 || now <= this.#activeUntil
    if (!hasReason && this.#pool.lentCount() === 0) {
      this.#sightings.clear()
      this.#triedBeside = false
      return
    }
    this.#schedule()
    const accused: Sighting[] = []
    const sightings = new Map<object, Sighting>()
    for (const suspect of this.#pool.suspects(hasReason ? 'all' : 'ours')) {
      const sighting = this.#sightingOf(suspect, now)
      sightings.set(suspect.id, sighting)
      if (this.#isLate(sighting, now)) this.#tryBeside()
      if (!this.#isOverdue(sighting, now)) continue
      if (suspect.state === 'opening') this.#end(sighting)
      else accused.push(sighting)
    }
    this.#sightings = sightings
    if (accused.length > 0 && !this.#judging) void this.#judge(accused)
  }

  #sightingOf(suspect: Suspect, now: number): Sighting {
    const { pid, state, question } = suspect
    const earlier = this.#sightings.get(suspect.id)
    if (earlier === undefined || earlier.pid !== pid || earlier.state !== state || earlier.question !== question)
      return { pid, state, question, since: now, suspect }
    earlier.suspect = suspect
    return earlier
  }

  /** Whether the server will have to be asked about it soon. */
  #isLate({ state, since, pokedAt }: Sighting, now: number): boolean {
    if (state === 'held') return pokedAt !== undefined && now - pokedAt >= this.#silenceMs / 4
    return state === 'asked' && now - since >= this.#silenceMs / 2
  }

  /** Whether it has waited for an answer for the whole silence; one that is held, for half of it. */
  #isOverdue(sighting: Sighting, now: number): boolean {
    if (sighting.ended === true) return false
    if (sighting.state !== 'held') return now - sighting.since >= this.#silenceMs
    const half = this.#silenceMs / 2
    if (sighting.pokedAt !== undefined) return now - sighting.pokedAt >= half
    if (now - sighting.since >= half) {
      sighting.pokedAt = now
      const answered = (): void => void this.#sightings.delete(sighting.suspect.id)
      sighting.suspect.poke?.().then(answered, answered)
    }
    return false
  }

  async #judge(accused: readonly Sighting[]): Promise<void> {
    this.#judging = true
    try {
      const waitedMs = await this.#askServer(accused)
      if (waitedMs === undefined) return
      const now = performance.now()
      for (const sighting of accused) {
        // It may have been answered meanwhile.
        if (this.#sightings.get(sighting.suspect.id) !== sighting) continue
        const heardMs = now - (sighting.pokedAt ?? sighting.since)
        const backendMs = waitedMs.get(sighting.pid ?? 0)
        const isGone = sighting.pid !== undefined && backendMs === undefined && this.#pool.hasOneServer
        // Had the server heard of the question, it would not have waited for half as long.
        if (isGone || (typeof backendMs === 'number' && backendMs >= heardMs / 2)) this.#end(sighting)
        else
          this.#sightings.set(sighting.suspect.id, { ...sighting, since: now - (backendMs ?? 0), pokedAt: undefined })
      }
    } catch {
      // The server cannot be asked: another look comes.
    } finally {
      this.#judging = false
    }
  }

  /** For how long each backend that the server has waits for its client; null: it does not. Undefined behind a pooler. */
  async #askServer(accused: readonly Sighting[]): Promise<Map<number, number | null> | undefined> {
    const pids = accused.flatMap(({ pid }) => pid ?? [])
    const beside = await this.#pool.beside(this.#silenceMs)
    try {
      const [own, backends] = await new SilenceWatch(this.#silenceMs).script(beside, waitingBackends(pids))
      if (Number(own?.rows[0]?.['own']) !== beside.protocolPid) return undefined
      const rows = (backends?.rows ?? []) as { pid: string; waited: string | null }[]
      return new Map(rows.map(({ pid, waited }) => [Number(pid), waited === null ? null : Number(waited)]))
    } finally {
      beside.release()
    }
  }

  /** Before it is needed: to find out that it is silent takes as long as a look at the others. */
  #tryBeside(): void {
    if (this.#triedBeside || !this.#pool.keepsBeside) return
    this.#triedBeside = true
    const half = this.#silenceMs / 2
    void tryOne(this.#pool.beside(half), new SilenceWatch(half))
  }

  #end(sighting: Sighting): void {
    sighting.ended = true
    // The others of that network may be dead as well, even if no caller waits for their places.
    this.#activeUntil = performance.now() + SILENCES_ACTIVE * this.#silenceMs
    sighting.suspect.end()
  }

  /** Closes those idle ones that do not answer either. */
  #tryIdle(): void {
    if (this.#trying) return
    this.#trying = true
    const { driver } = this.#pool
    const silence = new SilenceWatch(Math.min(this.#silenceMs, IDLE_ANSWER_MS))
    const tried: Promise<void>[] = []
    while (driver.hasIdle() && tried.length < driver.poolSize) tried.push(tryOne(driver.connect(), silence))
    void Promise.all(tried).then(() => (this.#trying = false))
  }
}

async function tryOne(connecting: Promise<Connection>, silence: SilenceWatch): Promise<void> {
  const connection = await connecting.catch(() => undefined)
  if (connection === undefined) return
  try {
    await silence.script(connection, PROBE)
    connection.release()
  } catch {
    connection.destroy()
  }
}
