import { Agent, request } from 'node:http'
import type { Socket } from 'node:net'
import { PROCESS_HEADER } from '../http/processHeader.ts'

/** An answer, or that there was none. */
export type Answer =
  | { readonly status: number; readonly body: Record<string, unknown> }
  | { readonly status: 'cut' | 'late' }

export interface SendRequest {
  readonly method: 'GET' | 'POST'
  readonly url: string
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
  /** Absent: it waits until there is an answer, or the connection is closed. */
  readonly timeoutMs?: number
  /** Ends it without an answer. */
  readonly abandoned?: AbortSignal
  /** Absent: a connection of its own. */
  readonly agent?: Agent
  /** Called as soon as the question goes to a process that is known, because it has answered on the same connection before. */
  readonly sentTo?: (pid: number) => void
}

/** The process of the desk that has answered on a connection. */
const processes = new WeakMap<Socket, number>()

/** Asks once. It never throws: what went wrong is the answer. */
export function sendOnce({
  method,
  url,
  body,
  headers,
  timeoutMs,
  abandoned,
  agent,
  sentTo,
}: SendRequest): Promise<Answer> {
  return new Promise((resolve) => {
    const bytes = body === undefined ? undefined : Buffer.from(JSON.stringify(body))
    const asking = request(url, {
      method,
      agent: agent ?? false,
      ...(abandoned !== undefined && { signal: abandoned }),
      headers: {
        accept: 'application/json',
        ...(bytes && { 'content-type': 'application/json', 'content-length': bytes.length }),
        ...headers,
      },
    })
    let late = false
    const giveUp = (): void => {
      late = true
      asking.destroy()
    }
    const timer = timeoutMs === undefined ? undefined : setTimeout(giveUp, timeoutMs)
    const end = (answer: Answer): void => {
      clearTimeout(timer)
      resolve(answer)
    }
    const noAnswer = (): void => end({ status: late ? 'late' : 'cut' })
    asking.on('error', noAnswer)
    asking.on('socket', (socket) => {
      const pid = processes.get(socket)
      if (pid !== undefined) sentTo?.(pid)
    })
    asking.on('response', (response) => {
      const pid = Number(response.headers[PROCESS_HEADER])
      if (pid > 0) processes.set(response.socket, pid)
      const pieces: Buffer[] = []
      response.on('data', (piece: Buffer) => pieces.push(piece))
      response.on('error', noAnswer)
      response.on('end', () => {
        end({ status: response.statusCode ?? 0, body: parsed(Buffer.concat(pieces).toString()) })
      })
    })
    asking.end(bytes)
  })
}

function parsed(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
  } catch {
    return {}
  }
}
