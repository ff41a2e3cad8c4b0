import type { Problem } from 'pg-lockstep/console'

/** What the server refused, in its own words. */
export class RequestRefusedError extends Error {
  override readonly name = 'Refused'
  readonly problem: Problem

  constructor(problem: Problem) {
    super(`${problem.title}. ${problem.detail}`)
    this.problem = problem
  }
}

/** An address of the console's server, wherever the page is mounted. */
export function address(path: string): string {
  return new URL(path, document.baseURI).href
}

const PATIENCE_MS = 15_000

async function send(path: string, init: RequestInit): Promise<Response> {
  let answer: Response
  try {
    answer = await fetch(address(path), { ...init, signal: AbortSignal.timeout(PATIENCE_MS) })
  } catch {
    throw new RequestRefusedError({
      status: 0,
      code: 'no-answer',
      title: 'The console does not answer',
      detail: 'The action may or may not have been done. Check again when the connection is back.',
    })
  }
  if (answer.ok) return answer
  throw new RequestRefusedError(await problemOf(answer))
}

/** A proxy in between may answer with a page of its own. */
async function problemOf(answer: Response): Promise<Problem> {
  const { status, statusText } = answer
  const given = (await answer.json().catch(() => ({}))) as Partial<Problem>
  return {
    status,
    code: given.code ?? 'unknown',
    title: given.title ?? `${status} ${statusText}`,
    detail: given.detail ?? 'The server gave no reason.',
  }
}

/** What an address is refused with; undefined if it is answered, or if no server is there. */
export async function refusalOf(url: string): Promise<RequestRefusedError | undefined> {
  const stopping = new AbortController()
  try {
    const answer = await fetch(url, { signal: stopping.signal })
    return answer.ok ? undefined : new RequestRefusedError(await problemOf(answer))
  } catch {
    return undefined
  } finally {
    stopping.abort()
  }
}

/** Reads from the server. */
export async function get<T>(path: string): Promise<T> {
  return (await (await send(path, { headers: { accept: 'application/json' } })).json()) as T
}

/** Has the server do something; `undefined` where it has nothing to say. */
export async function post<T>(path: string, csrf: string, body: unknown): Promise<T | undefined> {
  const answer = await send(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-lockstep-csrf': csrf },
    body: JSON.stringify(body),
  })
  return answer.status === 204 ? undefined : ((await answer.json()) as T)
}
