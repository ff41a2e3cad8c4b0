import { ACTIONS, auditName } from './actions.ts'
import { answer, done, failure, json } from './responses.ts'
import type { ConsoleLockstep, ConsolePlan, KnownPerson } from './consoleOptions.ts'
import { type Client, isCrossSite, isFromHere, isFromOwnPage, isSecure, type RequestSource } from './origin.ts'
import { pageContents } from './pageContents.ts'
import { PageFiles } from './pageFiles.ts'
import { ReadRoutes } from './readRoutes.ts'
import { refuse } from './refusals.ts'
import { readJson } from './requestBody.ts'
import { type LoginSession, Sessions } from './sessions.ts'

/** Answers requests: first who asks, then what. */
export class Site {
  readonly #lockstep: ConsoleLockstep
  readonly #plan: ConsolePlan
  readonly #page = new PageFiles(pageContents)
  readonly #sessions: Sessions
  readonly #readRoutes: ReadRoutes
  #closed = false

  constructor(lockstep: ConsoleLockstep, plan: ConsolePlan) {
    this.#lockstep = lockstep
    this.#plan = plan
    this.#readRoutes = new ReadRoutes(lockstep, plan)
    this.#sessions = new Sessions(plan, (id) => this.#readRoutes.poller.end(id))
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#sessions.close()
    await this.#readRoutes.close()
  }

  /** Never throws. */
  async handle(request: Request, source: RequestSource): Promise<Response> {
    try {
      if (this.#closed) return refuse.closed()
      const client = this.#clientOf(request, source)
      if (this.#isOpen && !(isFromHere(request, source) && isFromHere(request, client))) return refuse.notFromHere()
      const { pathname } = new URL(request.url)
      const { base } = this.#plan
      // The page asks for what lies beside it. By its name, because some servers (Next.js) redirect from a path with a slash at its end to
      // the one without.
      if (`${pathname}/` === base) {
        return answer(308, null, { location: `${base}index.html`, 'cache-control': 'no-cache' })
      }
      if (!pathname.startsWith(base)) return refuse.notFound()
      const path = pathname.slice(base.length)
      if (path.startsWith('api/')) return await this.#api(path.slice('api/'.length), request, client)
      if (request.method !== 'GET' && request.method !== 'HEAD') return refuse.wrongMethod('GET, HEAD')
      return this.#page.serve(path, request, source.keepsEncoding === true) ?? refuse.notFound()
    } catch (error) {
      return failure(error)
    }
  }

  /** Whether everyone can look without logging in. */
  get #isOpen(): boolean {
    return !this.#sessions.needsToken && this.#plan.authenticate === undefined
  }

  /** What the mount says goes before what the connection shows, which is the proxy's address where there is one. */
  #clientOf(request: Request, { address }: RequestSource): Client {
    const said = this.#plan.identify?.(request)
    return { name: nameFrom(said?.name), address: said?.address || address }
  }

  async #api(path: string, request: Request, client: Client): Promise<Response> {
    if (isCrossSite(request)) return refuse.crossSite()
    if (path === 'login') return this.#login(request, client)
    const { authenticate } = this.#plan
    const found =
      authenticate === undefined
        ? { session: await this.#sessions.visitor(request, client), from: client }
        : await this.#known(authenticate, request, client)
    const { session, from } = found
    if (session === 'later') return refuse.tooManyTries()
    if (session === undefined || session.ended)
      return authenticate === undefined ? refuse.tokenNeeded() : refuse.noPerson()
    const read = this.#readRoutes.at(path)
    if (read === undefined) return this.#change(path, session, request, from)
    if (request.method !== 'GET') return refuse.wrongMethod('GET')
    return read(session, new URL(request.url).searchParams)
  }

  /** The person whom the service knows. What it throws is the service's to see, and a refusal for the page. */
  async #known(
    authenticate: NonNullable<ConsolePlan['authenticate']>,
    request: Request,
    client: Client,
  ): Promise<{ readonly session: LoginSession | undefined; readonly from: Client }> {
    // The body is for the action.
    const asked = new Request(request.url, { method: request.method, headers: request.headers })
    const personNow = async (): Promise<KnownPerson | undefined> => {
      const person = await authenticate(asked.clone())
      const name = nameFrom(person?.name)
      if (person === undefined || name === undefined) return undefined
      return { ...person, name, role: person.role === 'operator' ? 'operator' : 'viewer' }
    }
    const person = await personNow()
    if (person === undefined) return { session: undefined, from: client }
    const stillKnown = async (): Promise<boolean> => (await personNow())?.name === person.name
    const from = { name: person.name, address: person.address ?? client.address }
    return { session: this.#sessions.sessionOf(person, stillKnown), from }
  }

  async #change(path: string, session: LoginSession, request: Request, client: Client): Promise<Response> {
    const action = ACTIONS.get(path)
    if (action === undefined && path !== 'logout') return refuse.notFound()
    if (request.method !== 'POST') return refuse.wrongMethod('POST')
    if (!isFromOwnPage(request)) return refuse.crossSite()
    if (!this.#sessions.isCsrf(session, request.headers.get('x-lockstep-csrf'))) return refuse.csrfWrong()
    if (action === undefined) return this.#logout(session, request)
    if (!session.operator) return refuse.operatorsOnly()
    const read = await readJson(request)
    if (read instanceof Response) return read
    // The body may have taken its time.
    if (session.ended) return refuse.tokenNeeded()
    // A token of one person says who it is; of a token that all have, the proxy knows more than the login.
    const name = session.known ? session.name : (client.name ?? session.name)
    const by = auditName({ name, address: client.address })
    const said = await action.run({ lockstep: this.#lockstep, replayTo: this.#plan.replayTo }, read.body, by)
    this.#readRoutes.poller.hurry(action.tab)
    return json(said)
  }

  async #login(request: Request, client: Client): Promise<Response> {
    if (!this.#sessions.needsToken) return refuse.noToken()
    if (request.method !== 'POST') return refuse.wrongMethod('POST')
    if (!isFromOwnPage(request)) return refuse.crossSite()
    // There is no session yet that it could be of. That it is there says that no other site's form sent it.
    if (!request.headers.get('x-lockstep-csrf')) return refuse.csrfWrong()
    const read = await readJson(request)
    if (read instanceof Response) return read
    const { token, name } = read.body as { token?: unknown; name?: unknown }
    const verdict = await this.#sessions.login(request, client, {
      token,
      name: nameFrom(name),
      path: this.#plan.base,
      secure: isSecure(request),
    })
    if (verdict === 'later') return refuse.tooManyTries()
    return verdict === 'wrong' ? refuse.tokenWrong() : done({ 'set-cookie': verdict.cookie })
  }

  #logout(session: LoginSession, request: Request): Response {
    return done({ 'set-cookie': this.#sessions.logout(session, this.#plan.base, isSecure(request)) })
  }
}

const LONGEST_NAME = 100

/** A name as it can stand in an audit: without line breaks or other control characters, and not too long. */
function nameFrom(given: unknown): string | undefined {
  if (typeof given !== 'string') return undefined
  const name = given
    .replaceAll(/[\p{Cc}\p{Cf}]/gu, ' ')
    .trim()
    .slice(0, LONGEST_NAME)
  return name === '' ? undefined : name
}
