import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'

/** Somebody who may look. */
export interface Visit {
  /** What this visitor's POSTs have to carry. */
  readonly csrf: string
  /** Undefined where there is nothing to log out of. */
  readonly id: string | undefined
}

interface Kept extends Visit {
  readonly id: string
  usedAt: number
}

const COOKIE = 'lockstep_console'
/** More who are logged in at once: the one that came longest ago has to do it again. */
const MAX_SESSIONS = 100
const IDLE_MS = 12 * 60 * 60 * 1000

/** A wrong token is answered after this time, and only so many wait for that: twenty guesses a second at the most. */
const WRONG_ANSWER_MS = 500
const MAX_WRONG = 10

/** Who is logged in. Sessions live in memory: with the process they end. */
export class Sessions {
  readonly #token: string | undefined
  readonly #secret = randomBytes(32)
  readonly #sessions = new Map<string, Kept>()
  /** For those who have no session: without a token, or with one in every request. */
  readonly #csrf = randomBytes(24).toString('base64url')
  #wrong = 0

  constructor(token: string | undefined) {
    this.#token = token
  }

  get needsToken(): boolean {
    return this.#token !== undefined
  }

  /** Who asks; undefined where nobody is known, `'later'` where too many guess. */
  async visitor({ headers }: Request): Promise<Visit | 'later' | undefined> {
    const anybody: Visit = { csrf: this.#csrf, id: undefined }
    if (this.#token === undefined) return anybody
    const known = this.#sessionOf(headers.get('cookie'))
    if (known !== undefined) return known
    const bearer = /^Bearer +(\S+)$/i.exec(headers.get('authorization') ?? '')?.[1]
    if (bearer === undefined) return undefined
    const verdict = await this.#judge(bearer)
    return verdict === 'right' ? anybody : verdict === 'later' ? 'later' : undefined
  }

  /** Gives a cookie for the right token. */
  async login(given: unknown, path: string, secure: boolean): Promise<{ readonly cookie: string } | 'wrong' | 'later'> {
    const verdict = await this.#judge(given)
    if (verdict !== 'right') return verdict
    const [id, csrf] = [randomBytes(24).toString('base64url'), randomBytes(24).toString('base64url')]
    this.#sessions.set(id, { id, csrf, usedAt: performance.now() })
    const [oldest] = this.#sessions.keys()
    if (this.#sessions.size > MAX_SESSIONS && oldest !== undefined) this.#sessions.delete(oldest)
    return { cookie: `${COOKIE}=${id}; ${attributes(path, secure)}` }
  }

  /** Gives the cookie that takes the other away. */
  logout({ id }: Visit, path: string, secure: boolean): string {
    if (id !== undefined) this.#sessions.delete(id)
    return `${COOKIE}=; ${attributes(path, secure)}; Max-Age=0`
  }

  isCsrf(visit: Visit, given: string | null): boolean {
    return given !== null && this.#equal(visit.csrf, given)
  }

  #sessionOf(cookies: string | null): Kept | undefined {
    for (const each of (cookies ?? '').split(';')) {
      const [name, id = ''] = each.trim().split('=', 2)
      const session = name === COOKIE ? this.#sessions.get(id) : undefined
      if (session === undefined) continue
      const now = performance.now()
      // Found anew, it stands behind the others.
      this.#sessions.delete(id)
      if (now - session.usedAt > IDLE_MS) continue
      session.usedAt = now
      this.#sessions.set(id, session)
      return session
    }
    return undefined
  }

  async #judge(given: unknown): Promise<'right' | 'wrong' | 'later'> {
    // Before it is compared: else guesses would be answered as quickly as they come.
    if (this.#wrong >= MAX_WRONG) return 'later'
    if (this.#token !== undefined && typeof given === 'string' && this.#equal(this.#token, given)) return 'right'
    this.#wrong++
    await delay(WRONG_ANSWER_MS, undefined, { ref: false })
    this.#wrong--
    return 'wrong'
  }

  /** The same time for each, however much of it is right. */
  #equal(one: string, other: string): boolean {
    const digest = (text: string): Buffer => createHmac('sha256', this.#secret).update(text).digest()
    return timingSafeEqual(digest(one), digest(other))
  }
}

function attributes(path: string, secure: boolean): string {
  return `Path=${path}; HttpOnly; SameSite=Strict${secure ? '; Secure' : ''}`
}
