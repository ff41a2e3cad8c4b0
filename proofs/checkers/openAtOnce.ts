import { setTimeout as sleep } from 'node:timers/promises'

/**
 * How many of so many come to be open at the same time, within the time. `open` opens one and keeps it open for as long as the
 * promise of what it is given lasts.
 */
export async function openAtOnce(
  count: number,
  withinMs: number,
  open: (held: () => Promise<void>) => Promise<unknown>,
): Promise<number> {
  let opened = 0
  let allAreOpen = (): void => undefined
  const all = new Promise<void>((resolve) => (allAreOpen = resolve))
  let late = false
  const timeIsUp = sleep(withinMs, undefined, { ref: false }).then(() => (late = true))
  const held = async (): Promise<void> => {
    // One that comes when the first ones have left was not open together with them.
    if (!late && ++opened === count) allAreOpen()
    await Promise.race([all, timeIsUp])
  }
  await Promise.all(Array.from({ length: count }, () => open(held)))
  return Math.min(opened, count)
}
