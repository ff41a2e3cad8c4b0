import { signal } from '@preact/signals'

/** The time here, by the second: what counts up or down looks at it. */
export const now = signal(Date.now())

/** How far the server's clock is ahead of ours. */
export const ahead = signal(0)

setInterval(() => (now.value = Date.now()), 1000)

/** Notes what the server says the time is. A difference that a slow network explains is none. */
export function compareClocks(serverTime: string): void {
  const difference = Date.parse(serverTime) - Date.now()
  if (Math.abs(difference - ahead.peek()) > 1500) ahead.value = difference
}
