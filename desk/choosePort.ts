import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { DEFAULT_PORT } from './options.ts'

/** The port was asked for by number, and is taken. */
export class PortTakenError extends Error {
  override readonly name = 'PortTakenError'
}

/**
 * A port that is free just now. One that was asked for is used or is an error; the usual one is replaced, and the caller prints that.
 */
export async function choosePort(
  host: string,
  asked: number | undefined,
  say: (line: string) => void,
): Promise<number> {
  const wanted = asked ?? DEFAULT_PORT
  const found = await tryPort(host, wanted)
  if (found !== undefined) return found
  if (asked !== undefined) {
    throw new PortTakenError(
      `Port ${asked} of ${host} is taken. Give another with --port N, or --port 0 for any that is free.`,
    )
  }
  const other = (await tryPort(host, 0)) as number
  say(`Port ${wanted} is taken: the desk uses ${other} this time. The examples below say so as well.`)
  return other
}

async function tryPort(host: string, port: number): Promise<number | undefined> {
  const probe = createServer()
  probe.listen(port, host)
  try {
    await once(probe, 'listening')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') return undefined
    throw error
  }
  const { port: found } = probe.address() as AddressInfo
  const closed = once(probe, 'close')
  probe.close()
  await closed
  return found
}
