import { setTimeout as sleep } from 'node:timers/promises'
import type { DataHook } from 'pg-lockstep/testing'
import { type Fault, inFlight, type Scene, type Struck } from './fault.ts'
import { COMMIT_FAULTS, strikeNextCommit } from './inCommit.ts'

const CUTS = 4
const CUT_WITHIN_MS = 600
const SLOW_FOR_MS = 1200
/** Longer than `silenceMs` of the workers. */
const SILENT_MS = 2000
const DELAYS_MS = [20, 60, 150]

const throughProxy = ({ workers }: Scene): Struck => {
  const struck = workers.filter(({ way }) => way === 'proxy')
  return { on: struck.map(({ by }) => by).join(', '), operations: inFlight(struck) }
}

/** The proxy does one thing at a time. */
let busy: Promise<unknown> = Promise.resolve()
function alone<T>(work: () => Promise<T>): Promise<T> {
  const mine = busy.then(work)
  busy = mine.catch(() => undefined)
  return mine
}

export const cutInCommit: Fault = {
  name: 'cut-in-commit',
  about: 'a connection is cut as COMMIT goes out, before its answer comes back, or COMMIT arrives late',
  strike: (scene) =>
    alone(async () => {
      let operations = 0
      for (let cut = 0; cut < CUTS; cut++) {
        const strike = strikeNextCommit(scene.proxy, scene.random.pick(COMMIT_FAULTS))
        const until = performance.now() + CUT_WITHIN_MS
        while (!strike.struck && performance.now() < until) await sleep(2)
        scene.proxy.onClientData(undefined)
        scene.proxy.onServerData(undefined)
        if (strike.struck) operations++
        // Late, but not so late that callers give up.
        setTimeout(() => strike.deliver(), 300)
      }
      return { on: throughProxy(scene).on, operations }
    }),
}

/** The workers behind the proxy lose all their connections at once, and cannot open others for a while. */
export async function cutOff(scene: Scene, forMs: number): Promise<Struck> {
  const struck = throughProxy(scene)
  scene.proxy.refuse(true)
  scene.proxy.cutAll()
  await sleep(forMs)
  scene.proxy.refuse(false)
  return struck
}

export const halfOpen: Fault = {
  name: 'half-open',
  about: 'connections fall silent: nothing is closed, nothing comes through, for longer than callers wait',
  async strike(scene) {
    const struck = throughProxy(scene)
    const silenced = await alone(async () => {
      scene.proxy.silence()
      await sleep(100)
      scene.proxy.resume()
      return scene.proxy.connections
    })
    // When the network is back, the server notices that the clients are gone; until then it keeps their locks.
    await sleep(SILENT_MS)
    for (const connection of silenced) connection.cut()
    return struck
  },
}

export const slow: Fault = {
  name: 'slow',
  about: 'what goes to the server, or what comes from it, takes 20 to 150 ms',
  strike: (scene) =>
    alone(async () => {
      const struck = throughProxy(scene)
      const delayMs = scene.random.pick(DELAYS_MS)
      const delay: DataHook = (_, connection) => {
        setTimeout(() => connection.release(), delayMs)
        return 'hold'
      }
      if (scene.random.chance(0.5)) scene.proxy.onClientData(delay)
      else scene.proxy.onServerData(delay)
      await sleep(SLOW_FOR_MS)
      scene.proxy.onClientData(undefined)
      scene.proxy.onServerData(undefined)
      await sleep(delayMs + 10)
      return struck
    }),
}
