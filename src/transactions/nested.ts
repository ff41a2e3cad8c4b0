import { checkFunction, checkOptions } from '../checkOptions.ts'
import { InvalidOptionError, NestedTransactionError } from '../errors.ts'
import { type FrameScope, runInFrame } from './frames.ts'
import { readsFresh } from './isolation.ts'
import { planTransaction, type TransactionOptions, type TransactionPlan } from './options.ts'
import { NESTED_OPTIONS, type NestedOptions, type Transaction } from './transactionInterface.ts'

/** What only the outermost transaction can do. */
const OUTERMOST = ['waitMs', 'noWait', 'signal', 'retry'] as const

/** Runs the function as a part of an open transaction: a savepoint, under locks that are held already. */
export async function runNested<T>(
  outer: FrameScope,
  options: NestedOptions,
  fn: (tx: Transaction) => Promise<T>,
): Promise<T> {
  outer.tx.assertOpen()
  refuseUnlessCovered(outer, planNested(outer, options))
  checkFunction('tx.transaction()', fn)
  return runInSavepoint(outer, fn)
}

/** The function's code is inside the transaction, wherever the call was made from. */
export function runInSavepoint<T>({ context, tx, plan }: FrameScope, fn: (tx: Transaction) => Promise<T>): Promise<T> {
  return tx.nest((inner) => runInFrame({ context, tx: inner, plan }, () => fn(inner)))
}

function planNested({ context }: FrameScope, options: TransactionOptions): TransactionPlan {
  const useless = OUTERMOST.filter((name) => options?.[name] !== undefined)
  if (useless.length > 0) {
    throw new InvalidOptionError(`tx.transaction() was given ${useless.map((name) => `\`${name}\``).join(', ')}.`, {
      advice: 'It waits for nothing and is not run again by itself. Give these options to the outermost transaction.',
    })
  }
  checkOptions('tx.transaction()', options, NESTED_OPTIONS)
  return planTransaction(context, options)
}

/** Refuses what the open transaction does not have. */
function refuseUnlessCovered({ tx, plan: outer }: FrameScope, plan: TransactionPlan): void {
  const held = new Map(outer.declared.map((lock) => [lock.id, lock]))
  const missing = plan.declared.filter((lock) => {
    const same = held.get(lock.id)
    return same === undefined || (same.shared && !lock.shared)
  })
  const [first] = missing
  if (first !== undefined) {
    const upgrade = held.has(first.id)
    throw new NestedTransactionError(
      upgrade
        ? `The inner transaction wants ${first.key} exclusively, which the outer one holds shared.`
        : `The inner transaction wants ${missing.map((lock) => lock.key).join(', ')}, which the outer one does not hold.`,
      {
        advice:
          'Declare every lock in the outermost transaction: taken later, it would come after the first read and out of order.',
        keys: missing.map((lock) => lock.key),
      },
    )
  }
  for (const part of plan.parts) part.refuseUnlessCovered?.(outer.parts, plan.allKeys)
  if (
    plan.isolationStated &&
    plan.isolation !== tx.isolation &&
    !(readsFresh(plan.isolation) && readsFresh(tx.isolation))
  ) {
    throw new NestedTransactionError(
      `The inner transaction wants ${plan.isolation}, the outer one is ${tx.isolation}.`,
      {
        advice: 'Give the outermost transaction the isolation that its parts need.',
        keys: plan.allKeys,
      },
    )
  }
}
