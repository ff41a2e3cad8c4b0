import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll } from 'vitest'

/** Where a process is stopped on its way to the exchange. */
export interface Toll {
  readonly symbol: string
  readonly kind: string
  /** Before the exchange has heard of it, or after it was done. */
  readonly when: 'before' | 'after'
  readonly strike: () => Promise<void>
}

/** Stands before the exchange, and strikes requests that reach a toll. An answer that is held back is never sent. */
export async function openTollgate(exchangeUrl: string, tolls: Toll[]): Promise<string> {
  const server = createServer((request, response) => {
    void pass(request).then(
      ({ status, body }) => response.writeHead(status, { 'content-type': 'application/json' }).end(body),
      () => response.destroy(),
    )
  })

  async function pass(request: IncomingMessage): Promise<{ status: number; body: Buffer }> {
    const pieces: Buffer[] = []
    for await (const piece of request as AsyncIterable<Buffer>) pieces.push(piece)
    const body = Buffer.concat(pieces)
    const order = body.length > 0 ? (JSON.parse(body.toString()) as { symbol?: string; kind?: string }) : {}
    const index = tolls.findIndex(({ symbol, kind }) => symbol === order.symbol && kind === order.kind)
    const [toll] = index === -1 ? [] : tolls.splice(index, 1)
    if (toll?.when === 'before') {
      await toll.strike()
      throw new Error('struck')
    }
    const answer = await fetch(exchangeUrl + (request.url ?? ''), {
      method: request.method ?? 'GET',
      ...(body.length > 0 && { body }),
    })
    const bytes = Buffer.from(await answer.arrayBuffer())
    if (toll?.when === 'after') {
      await toll.strike()
      throw new Error('struck')
    }
    return { status: answer.status, body: bytes }
  }

  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  afterAll(async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}
