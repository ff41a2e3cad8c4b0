import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { digestOf, type ConsolePlan, type KnownPerson } from './consoleOptions.ts'
import type { Client } from './origin.ts'
import { LoginAttempts } from './loginAttempts.ts'

/** A viewer who is logged in. */
export interface LoginSession {
  /** What this visitor's POSTs have to carry. */
  readonly csrf: string
  /** Undefined where there is nothing to log out of. */
  readonly id: string | undefined
  /** The name of the person, or one that was given at login and is not checked. */
  readonly name: string | undefined
  /** The name is known and not only given: nothing else goes before it. */
  readonly known: boolean
  readonly operator: boolean
  /** Its session has ended since it was found. */
  readonly ended: boolean
  /** Where the service authenticates: whether it still knows the person. To be asked while a page looks. */
  readonly stillKnown?: () => Promise<boolean>
}

/** Whose token it is. */
type Owner = Pick<LoginSession, 'name' | 'known' | 'operator'>

interface StoredSession extends LoginSession {
  readonly id: string
  usedAt: number
  ended: boolean
}

const COOKIE = 'lockstep_console'
/** More who are logged in at once: the one that was used longest ago ends. */
const MAX_SESSIONS = 100
const IDLE_MS = 12 * 60 * 60 * 1000
/** How often unused sessions are looked for, so that their streams end as well. */
const SWEEP_MS = 60_000

/** The credentials of a login. */
export interface Credentials {
  readonly token: unknown
  readonly name: string | undefined
  readonly path: string
  readonly secure: boolean
}

/**
 * Who is logged in. Sessions live in memory: with the process they end. A session ends by logging out, after twelve hours without use, and
 * when 100 others were used since; `ended` is called each time, because its streams must end with it.
 */
export class Sessions {
  readonly #owners: readonly { readonly digest: Buffer; readonly owner: Owner }[]
  readonly #ended: (id: string) => void
  readonly #secret = randomBytes(32)
  readonly #sessions = new Map<string, StoredSession>()
  readonly #attempts = new LoginAttempts()
  /** For those who have no session: without a token, or with one in every request. */
  readonly #csrf = randomBytes(24).toString('base64url')
  #sweeping: NodeJS.Timeout | undefined

  constructor(
    { token, operator, people }: Pick<ConsolePlan, 'token' | 'operator' | 'people'>,
    ended: (id: string) => void,
  ) {
    const shared = { digest: sha256(token ?? ''), owner: { name: undefined, known: false, operator } }
    const owners = people?.map((person) => ({
      digest: digestOf(person),
      owner: { name: person.name, known: true, operator: person.role === 'operator' },
    }))
    this.#owners = owners ?? (token === undefined ? [] : [shared])
    this.#ended = ended
  }

  get needsToken(): boolean {
    return this.#owners.length > 0
  }

  /** Who asks; undefined without a valid session, `'later'` where too many guesses come from that address. */
  async visitor({ headers }: Request, { address }: Client): Promise<LoginSession | 'later' | undefined> {
    const anybody = { csrf: this.#csrf, id: undefined, name: undefined, known: false, operator: false, ended: false }
    if (!this.needsToken) return anybody
    // First: the holder of a session is never limited by what others guess.
    const known = this.#sessionOf(headers.get('cookie'))
    if (known !== undefined) return known
    const bearer = /^Bearer +(\S+)$/i.exec(headers.get('authorization') ?? '')?.[1]
    if (bearer === undefined) return undefined
    const verdict = await this.#judge(bearer, address, false)
    if (verdict === 'wrong') return undefined
    return verdict === 'later' ? verdict : { ...anybody, ...verdict }
  }

  /** The session of a user whom the service has authenticated: it lasts for one request. The CSRF token belongs to the user. */
  sessionOf({ name, role }: KnownPerson, stillKnown: () => Promise<boolean>): LoginSession {
    const csrf = createHmac('sha256', this.#secret).update(`csrf of ${name}`).digest('base64url')
    return { csrf, id: undefined, name, known: true, operator: role === 'operator', ended: false, stillKnown }
  }

  /** Gives a cookie for the right token. */
  async login(
    { headers }: Request,
    { address }: Client,
    { token, name, path, secure }: Credentials,
  ): Promise<{ readonly cookie: string } | 'wrong' | 'later'> {
    const verdict = await this.#judge(token, address, this.#sessionOf(headers.get('cookie')) !== undefined)
    if (typeof verdict === 'string') return verdict
    const [id, csrf] = [randomBytes(24).toString('base64url'), randomBytes(24).toString('base64url')]
    const owner = verdict.known ? verdict : { ...verdict, name }
    this.#sessions.set(id, { id, csrf, ...owner, usedAt: performance.now(), ended: false })
    const [oldest] = this.#sessions.keys()
    if (this.#sessions.size > MAX_SESSIONS && oldest !== undefined) this.#end(oldest)
    this.#sweeping ??= setInterval(() => this.#sweep(), SWEEP_MS).unref()
    return { cookie: `${COOKIE}=${id}; ${attributes(path, secure)}` }
  }

  /** Gives the cookie that takes the other away. */
  logout({ id }: LoginSession, path: string, secure: boolean): string {
    if (id !== undefined) this.#end(id)
    return `${COOKIE}=; ${attributes(path, secure)}; Max-Age=0`
  }

  isCsrf(session: LoginSession, given: string | null): boolean {
    return given !== null && this.#equal(session.csrf, given)
  }

  close(): void {
    clearInterval(this.#sweeping)
    this.#sweeping = undefined
    this.#sessions.clear()
  }

  #sessionOf(cookies: string | null): StoredSession | undefined {
    for (const each of (cookies ?? '').split(';')) {
      const [name, id = ''] = each.trim().split('=', 2)
      const session = name === COOKIE ? this.#sessions.get(id) : undefined
      if (session === undefined) continue
      if (this.#isIdle(session)) {
        this.#end(id)
        continue
      }
      // Used again, it stands behind the others.
      this.#sessions.delete(id)
      session.usedAt = performance.now()
      this.#sessions.set(id, session)
      return session
    }
    return undefined
  }

  #isIdle({ usedAt }: StoredSession): boolean {
    return performance.now() - usedAt > IDLE_MS
  }

  /** The order is that of use: the first that is not idle has only younger ones behind it. */
  #sweep(): void {
    for (const [id, session] of this.#sessions) {
      if (!this.#isIdle(session)) break
      this.#end(id)
    }
    if (this.#sessions.size > 0) return
    clearInterval(this.#sweeping)
    this.#sweeping = undefined
  }

  #end(id: string): void {
    const session = this.#sessions.get(id)
    if (session === undefined) return
    this.#sessions.delete(id)
    session.ended = true
    this.#ended(id)
  }

  async #judge(given: unknown, address: string | undefined, trusted: boolean): Promise<Owner | 'wrong' | 'later'> {
    // Before it is compared: otherwise guesses would be answered as quickly as they come.
    if (!trusted && this.#attempts.isFull(address)) return 'later'
    if (typeof given === 'string') {
      const digest = sha256(given)
      // All of them, so that the time says nothing about whose token it is.
      const [found] = this.#owners.filter((each) => timingSafeEqual(each.digest, digest))
      if (found !== undefined) return found.owner
    }
    await this.#attempts.wrong(address)
    return 'wrong'
  }

  /** The same time for each, however much of it is right. */
  #equal(one: string, other: string): boolean {
    const digest = (text: string): Buffer => createHmac('sha256', this.#secret).update(text).digest()
    return timingSafeEqual(digest(one), digest(other))
  }
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}

function attributes(path: string, secure: boolean): string {
  return `Path=${path}; HttpOnly; SameSite=Strict${secure ? '; Secure' : ''}`
}
