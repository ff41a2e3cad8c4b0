import { setTimeout as delay } from 'node:timers/promises'

/**
 * Lets callers meet between their read and their write, which is where a race happens. Each call resolves when all callers have arrived.
 * Without a lock all of them arrive. With a lock only its holder arrives: it continues after a tenth of a second.
 */
export function meeting(callers: number, locked: boolean): () => Promise<void> {
  let arrived = 0
  let open: () => void = () => {}
  const all = new Promise<void>((resolve) => {
    open = resolve
  })
  return async () => {
    if (++arrived === callers) open()
    await (locked ? Promise.race([all, delay(100)]) : all)
  }
}
