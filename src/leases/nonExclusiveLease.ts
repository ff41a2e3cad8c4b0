import type { LeaseLostError } from '../errors.ts'
import type { Key } from '../locks/index.ts'
import {
  type LockstepContext,
  outsideTransactions,
  type Transaction,
  type TransactionOptions,
} from '../transactions/index.ts'
import { type GuardedTransaction, type HeldLease, type Lease, leaseLostError, MARGIN } from './lease.ts'
import { refuseOtherTransactions, transactionWithoutGuard } from './leaseTransaction.ts'
import type { LeasePlan } from './options.ts'

/** What it is made of. */
interface NonExclusive {
  readonly key: Key
  readonly plan: LeasePlan
  readonly mode: 'observe' | 'off'
  /** Shows other observers that this one is there. Undefined with `off`, and where the database could not be asked. */
  readonly mark: HeldLease | undefined
  readonly ended: (lease: NonExclusiveLease) => void
}

/**
 * A lease whose key the rollout has observed or left alone. It must not stop its function, so nothing that happens to other holders, to its mark or to
 * the database ends it: only its release, and the closing of its Lockstep.
 */
export class NonExclusiveLease implements Lease {
  readonly key: Key
  readonly mode: 'observe' | 'off'
  /** Of the mark, from the same sequence as those of held leases: what has seen a fence of those takes this one for a later holder. */
  readonly fence: bigint
  readonly #context: LockstepContext
  readonly #lease: NonExclusive
  readonly #controller = new AbortController()
  #state: 'held' | 'lost' | 'released' = 'held'
  #releasing: Promise<void> | undefined

  constructor(context: LockstepContext, lease: NonExclusive) {
    this.key = lease.key
    this.mode = lease.mode
    this.fence = lease.mark?.fence ?? 0n
    this.#context = context
    this.#lease = lease
  }

  get holder(): string {
    return this.#lease.plan.holder
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  /** As of one that was granted just now: no caller is stopped by it, and it says nothing about others. */
  get trustedMs(): number {
    return this.#state === 'held' ? this.#lease.plan.ttlMs * (1 - MARGIN) : 0
  }

  get loss(): LeaseLostError | undefined {
    return this.#state === 'lost' ? (this.signal.reason as LeaseLostError) : undefined
  }

  assertHeld(): void {
    if (this.loss !== undefined) throw this.loss
    if (this.#state === 'released') throw leaseLostError(this, 'released')
  }

  explain(error: unknown): unknown {
    return this.loss === undefined || error === this.loss ? error : leaseLostError(this, 'closed', error)
  }

  transaction<T>(options: TransactionOptions, fn: (tx: Transaction) => Promise<T>): Promise<T> {
    return transactionWithoutGuard(this.#context, this, options, fn)
  }

  async guard(tx: GuardedTransaction): Promise<void> {
    refuseOtherTransactions(this.#context, this, tx)
    this.assertHeld()
    await Promise.resolve()
  }

  /** Its Lockstep is closed. */
  close(): void {
    if (this.#state !== 'held') return
    this.#state = 'lost'
    outsideTransactions(() => this.#controller.abort(leaseLostError(this, 'closed')))
  }

  release(): Promise<void> {
    this.#releasing ??= this.#release()
    return this.#releasing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release()
  }

  async #release(): Promise<void> {
    if (this.#state === 'held') this.#state = 'released'
    this.#lease.ended(this)
    await this.#lease.mark?.release()
  }
}
