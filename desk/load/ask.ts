import { Agent, request } from 'node:http'

/** An answer, or that there was none. */
export type Answer =
  | { readonly status: number; readonly body: Record<string, unknown> }
  | { readonly status: 'cut' | 'late' }

export interface Question {
  readonly method: 'GET' | 'POST'
  readonly url: string
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
  readonly timeoutMs: number
  /** Absent: a connection of its own. */
  readonly agent?: Agent
}

/** Asks once. It never throws: what went wrong is the answer. */
export function ask({ method, url, body, headers, timeoutMs, agent }: Question): Promise<Answer> {
  return new Promise((resolve) => {
    const bytes = body === undefined ? undefined : Buffer.from(JSON.stringify(body))
    const asking = request(url, {
      method,
      agent: agent ?? false,
      headers: {
        accept: 'application/json',
        ...(bytes && { 'content-type': 'application/json', 'content-length': bytes.length }),
        ...headers,
      },
    })
    let late = false
    const timer = setTimeout(() => {
      late = true
      asking.destroy()
    }, timeoutMs)
    const end = (answer: Answer): void => {
      clearTimeout(timer)
      resolve(answer)
    }
    const noAnswer = (): void => end({ status: late ? 'late' : 'cut' })
    asking.on('error', noAnswer)
    asking.on('response', (response) => {
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
