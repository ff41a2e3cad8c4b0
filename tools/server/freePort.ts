import { createServer } from 'node:net'

/**
 * A free port below the range from which systems take the local ports of outgoing connections. A port from
 * `listen(0)` lies inside that range: while a crashed server is down, any client's outgoing connection may be given it,
 * and the restart then fails to bind.
 */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 50; attempt++) {
    const port = 20_000 + Math.floor(Math.random() * 12_000)
    if (await canListen(port)) return port
  }
  throw new Error('found no free port between 20000 and 32000')
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer()
    probe.once('error', () => resolve(false))
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)))
  })
}
