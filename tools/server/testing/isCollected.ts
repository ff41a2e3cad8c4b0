import { setImmediate as turn } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose_gc')
export const collectGarbage = runInNewContext('gc') as () => void

/** Whether nothing but the reference holds the object. */
export async function isCollected(ref: WeakRef<object>): Promise<boolean> {
  for (let tries = 0; tries < 10 && ref.deref() !== undefined; tries++) {
    await turn()
    collectGarbage()
  }
  return ref.deref() === undefined
}
