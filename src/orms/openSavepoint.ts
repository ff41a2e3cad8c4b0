import type { OrmTransaction } from './ormTransaction.ts'

/** A savepoint whose end an ORM calls for, instead of returning from a function. */
export interface OpenSavepoint {
  readonly tx: OrmTransaction
  /** Ends it well. Where that cannot be, it is rolled back, and the call is rejected. */
  readonly release: () => Promise<void>
  readonly rollBack: () => Promise<void>
}

/** Opens a savepoint of Lockstep, which waits for its turn. If it is still open when the transaction ends, nothing is committed. */
export function openSavepoint(tx: OrmTransaction): Promise<OpenSavepoint> {
  return new Promise((opened, refused) => {
    const rolledBack = new Error('The ORM rolled its savepoint back.')
    const ended = tx.savepoint(
      (inner) =>
        new Promise<void>((release, rollBack) => {
          opened({
            tx: inner,
            async release() {
              release()
              await ended
            },
            async rollBack() {
              rollBack(rolledBack)
              await ended.catch((error: unknown) => {
                if (error !== rolledBack) throw error
              })
            },
          })
        }),
    )
    // Before it was opened. Afterwards the two calls report it.
    ended.catch(refused)
  })
}
