import { signal } from '@preact/signals'
import type { Session } from 'pg-lockstep/console'
import { get, post, RequestRefusedError } from './request.ts'

/** Who we are to the server; undefined until it has said so. */
export const session = signal<Session | undefined>(undefined)

/** Whether the server wants a token first. */
export const needsToken = signal(false)

export const READ_ONLY =
  'This console is read-only. Start it with --operator, or log in as an operator, to change things here.'

/** Asks the server again: after its restart it is another one. False where a token is needed. */
export async function meet(): Promise<boolean> {
  try {
    session.value = await get<Session>('api/session')
    needsToken.value = false
    return true
  } catch (error) {
    if (!(error instanceof RequestRefusedError && error.problem.status === 401)) throw error
    session.value = undefined
    needsToken.value = true
    return false
  }
}

/** The name is for the audit; it may be empty. */
export async function logIn(token: string, name: string): Promise<void> {
  await post('api/login', 'login', { token, name })
}

export async function logOut(): Promise<void> {
  await post('api/logout', session.peek()?.csrf ?? '', {})
  session.value = undefined
  needsToken.value = true
}

/** An operator's act. */
export async function act<T>(path: string, body: unknown): Promise<T | undefined> {
  return post<T>(path, session.peek()?.csrf ?? '', body)
}
