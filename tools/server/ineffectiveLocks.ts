import { lookalikes } from './ineffectiveLocks.sql.ts'
import { type Proxy, startProxy } from 'pg-lockstep/testing'
import { withClient } from './withClient.ts'

/** What takes the place of `advisory` in the names of the functions, letter for letter: messages keep their lengths. */
const WORDS = { granted: 'advisery', refused: 'advisary' } as const
const CALLED = Buffer.from('_advisory_')

/**
 * A stub in front of a real server: there advisory locks are accepted and do nothing, as in engines that have them for compatibility's
 * sake alone; or, with `refused`, none is ever granted. Everything else is the server's own.
 */
export async function startIneffectiveLocks(url: string, answer: keyof typeof WORDS = 'granted'): Promise<Proxy> {
  await withClient(url, (client) => client.query(lookalikes(WORDS[answer], answer === 'granted')))
  const { hostname, port } = new URL(url)
  const proxy = await startProxy({ targetHost: hostname, targetPort: Number(port) })
  const replacement = Buffer.from(`_${WORDS[answer]}_`)
  proxy.onClientData((chunk) => {
    // In place, since a hook cannot give another chunk. A name that two chunks share is left as it is: messages are far smaller.
    for (let at = chunk.indexOf(CALLED); at >= 0; at = chunk.indexOf(CALLED, at)) replacement.copy(chunk, at)
    return 'forward'
  })
  return proxy
}
