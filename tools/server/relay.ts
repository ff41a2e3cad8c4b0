import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'

export interface Relay {
  readonly url: string
  start(): Promise<void>
  stop(): Promise<void>
}

/** A server's second address, which can be taken away and restored: while it is away, connections are refused. */
export async function startRelay(to: string): Promise<Relay> {
  const target = new URL(to)
  const sockets = new Set<Socket>()
  let server: Server | undefined
  let port = 0
  const start = async (): Promise<void> => {
    server = createServer((client) => {
      const upstream = connect(Number(target.port), target.hostname)
      for (const socket of [client, upstream]) {
        sockets.add(socket)
        socket.on('error', () => undefined)
        socket.on('close', () => {
          client.destroy()
          upstream.destroy()
        })
      }
      client.pipe(upstream).pipe(client)
    })
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
    port = (server.address() as AddressInfo).port
  }
  const stop = async (): Promise<void> => {
    if (server?.listening !== true) return
    const closed = once(server, 'close')
    server.close()
    for (const socket of sockets) socket.destroy()
    await closed
  }
  await start()
  const url = new URL(to)
  url.port = String(port)
  return { url: url.href, start, stop }
}
