import { setTimeout as sleep } from 'node:timers/promises'
import { InvalidOptionError } from '../errors.ts'
import { outboxTopicsChanged, outboxTopicsHeld } from '../observe/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { dispatcherRemoved } from './cursorErrors.ts'
import type { DispatcherPlan } from './dispatcherOptions.ts'
import { onPrimary } from './onPrimary.ts'
import { ringBell, subscribeTo } from './outbox.sql.ts'
import { resultRows } from './resultRows.ts'

/** How often a process that waits for others looks whether they have ended. */
const LOOK_AGAIN_MS = 1000

/** Ends what runs under a list that is not the dispatcher's any more. */
export class TopicsChanged extends Error {
  override readonly name = 'TopicsChanged'
}

interface Answer {
  readonly answer: 'same' | 'changed' | 'held' | 'idle' | 'removed'
  readonly before: readonly string[] | undefined
  readonly topicsAfter: number
}

/**
 * Comes back when the dispatcher's list is that of the plan: at once where it is; otherwise when no process runs under the other list any more,
 * and it was changed. False if it was stopped before. Processes that rest hold no lease: they are woken, and have one ttl to show themselves.
 * `persist` repeats what fails while the server is away; undefined: it was stopped.
 */
export async function subscribe(
  context: LockstepContext,
  plan: DispatcherPlan,
  stopping: AbortSignal,
  persist: <T>(work: () => Promise<T>) => Promise<T | undefined>,
): Promise<boolean> {
  let [idleSince, wasReported]: [number | undefined, boolean] = [undefined, false]
  while (!stopping.aborted) {
    const change = idleSince !== undefined && performance.now() >= idleSince + plan.ttlMs
    const asked = await persist(() => ask(context, plan, change))
    if (asked === undefined) return false
    const { answer, before, topicsAfter } = asked
    if (answer === 'removed') throw dispatcherRemoved(plan.name)
    const message = { schema: context.schema, dispatcher: plan.name, from: before, to: plan.topics ?? undefined }
    if (answer === 'changed' && outboxTopicsChanged.hasSubscribers) {
      outboxTopicsChanged.publish({ ...message, topicsAfter })
    }
    if (answer === 'same' || answer === 'changed') return true
    if (!wasReported && outboxTopicsHeld.hasSubscribers) outboxTopicsHeld.publish(message)
    wasReported = true
    const someListen = await persist(() => ring(context))
    if (answer === 'held') idleSince = undefined
    // If no dispatcher listens, none rests.
    else idleSince ??= someListen === false ? -Infinity : performance.now()
    if (idleSince === -Infinity) continue
    await sleep(Math.min(LOOK_AGAIN_MS, plan.ttlMs / 4), undefined, { signal: stopping }).catch(() => undefined)
  }
  return false
}

/**
 * For a drain: fails where the dispatcher has begun with another list. Drains come and go, so none can tell whether others with the old list will
 * come: only `run()` changes the list.
 */
export async function requireTopics(context: LockstepContext, plan: DispatcherPlan): Promise<void> {
  const { answer } = await ask(context, plan, false)
  if (answer === 'removed') throw dispatcherRemoved(plan.name)
  if (answer === 'held' || answer === 'idle') throw topicsDiffer(plan)
}

export function topicsDiffer({ name, topics }: DispatcherPlan): InvalidOptionError {
  return new InvalidOptionError(
    `The dispatcher ${name} has other topics than ${topics === null ? 'all' : topics.join(', ')}: drain() does not change them.`,
    {
      advice:
        'Call run() once with the new list, with a signal that ends it after the event outbox.topicsChanged. Or use another name.',
    },
  )
}

async function ask(context: LockstepContext, plan: DispatcherPlan, change: boolean): Promise<Answer> {
  const text = subscribeTo(context.quotedSchema, plan.name, plan.topics, change)
  const [row] = resultRows(await onPrimary(context, (connection) => connection.script(text)))
  const { answer, before, topics_after: after } = row as Record<string, string | null>
  return {
    answer: answer as Answer['answer'],
    before: before === null || before === undefined ? undefined : (JSON.parse(before) as string[]),
    topicsAfter: Number(after),
  }
}

async function ring(context: LockstepContext): Promise<boolean> {
  const rung = await onPrimary(context, (connection) => connection.script(ringBell(context.quotedSchema, '')))
  return resultRows(rung)[0]?.['rung'] === 'true'
}
