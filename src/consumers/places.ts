import { onAbort } from '../postgres/index.ts'

/** Ends the use of a place. */
export type Release = () => void

interface Waiter {
  readonly tenant: string | undefined
  readonly take: (release: Release | undefined) => void
}

/**
 * The places of a consumer limit the open transactions, in total and of one tenant. A free place goes to the tenant that has the
 * fewest, and among equals to the one that has waited longest.
 */
export class Places {
  readonly #all: number
  readonly #perTenant: number
  readonly #used = new Map<string | undefined, number>()
  #inUse = 0
  #waiting: Waiter[] = []

  constructor(all: number, perTenant = all) {
    this.#all = all
    this.#perTenant = perTenant
  }

  get inUse(): number {
    return this.#inUse
  }

  /**
   * A place. Undefined where `late` was aborted while the tenant had all that it may have: then its own events are what it waits for, and
   * the others should not wait with it. While all places are taken by others, it continues waiting.
   */
  take(tenant: string | undefined, late?: AbortSignal): Promise<Release | undefined> {
    if (this.#isFree(tenant)) return Promise.resolve(this.#use(tenant))
    return new Promise((resolve) => {
      const giveUp = (): void => {
        if (this.#usedBy(tenant) < this.#perTenant) return
        this.#waiting = this.#waiting.filter((each) => each !== waiter)
        resolve(undefined)
      }
      let forget: () => void = () => undefined
      const waiter: Waiter = {
        tenant,
        take: (release) => {
          forget()
          resolve(release)
        },
      }
      this.#waiting.push(waiter)
      if (late !== undefined) forget = onAbort(late, giveUp)
    })
  }

  #usedBy(tenant: string | undefined): number {
    return this.#used.get(tenant) ?? 0
  }

  #isFree(tenant: string | undefined): boolean {
    return this.#inUse < this.#all && this.#usedBy(tenant) < this.#perTenant
  }

  #use(tenant: string | undefined): Release {
    this.#inUse++
    this.#used.set(tenant, this.#usedBy(tenant) + 1)
    return () => {
      this.#inUse--
      const left = this.#usedBy(tenant) - 1
      if (left === 0) this.#used.delete(tenant)
      else this.#used.set(tenant, left)
      this.#giveNext()
    }
  }

  #giveNext(): void {
    let next: Waiter | undefined
    for (const waiter of this.#waiting) {
      if (!this.#isFree(waiter.tenant)) continue
      if (next === undefined || this.#usedBy(waiter.tenant) < this.#usedBy(next.tenant)) next = waiter
    }
    if (next === undefined) return
    const taken = next
    this.#waiting = this.#waiting.filter((each) => each !== taken)
    taken.take(this.#use(taken.tenant))
  }
}
