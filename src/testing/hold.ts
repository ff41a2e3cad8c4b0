import { setTimeout as sleep } from 'node:timers/promises'
import type { Key, Keys, Lockstep } from '../index.ts'

const LOOK_EVERY_MS = 10

/** A lock that is held until the test releases it. */
export interface Held {
  /** Resolves when at least `count` sessions wait for the lock. Callers of one Lockstep wait in its memory, and one of them at the server. */
  readonly waiters: (count: number) => Promise<void>
  /** Ends the transaction that holds the lock. Can be called again. */
  readonly release: () => Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/** The part of a Lockstep that holds locks: of any event types and any driver. */
export type Holder = Pick<Lockstep, 'locks' | 'lockId'> & {
  transaction(options: { readonly lock: Keys }, fn: () => Promise<void>): Promise<void>
}

/**
 * Holds locks in a transaction that stays open until it is released. Resolves when the locks are held.
 *
 * @example
 * await using held = await hold(lockstep, key`Order:${id}`)
 * const paying = pay(id)
 * await held.waiters(1)
 * await held.release()
 * await paying
 */
export async function hold(lockstep: Holder, lock: Keys): Promise<Held> {
  let letGo = (): void => undefined
  const released = new Promise<void>((resolve) => (letGo = resolve))
  let isHeld = (): void => undefined
  const held = new Promise<void>((resolve) => (isHeld = resolve))
  const holding = lockstep.transaction({ lock }, async () => {
    isHeld()
    await released
  })
  await Promise.race([held, holding])
  const release = async (): Promise<void> => {
    letGo()
    await holding
  }
  return {
    async waiters(count) {
      const ids = new Set(keysOf(lock).map((each) => lockstep.lockId(each)))
      for (;;) {
        const { locks } = await lockstep.locks.list()
        const waiting = locks.filter(({ id }) => ids.has(id)).flatMap(({ waiters }) => waiters)
        if (waiting.length >= count) return
        await sleep(LOOK_EVERY_MS)
      }
    },
    release,
    [Symbol.asyncDispose]: release,
  }
}

function keysOf(lock: Keys): Key[] {
  const list = Array.isArray(lock) ? (lock as readonly unknown[]) : [lock]
  return list.map((each) => (typeof each === 'object' && each !== null ? (each as { key: Key }).key : (each as Key)))
}
