import { setTimeout as sleep } from 'node:timers/promises'
import type { Page } from 'playwright-core'
import type { CardName, CardState, FaultName } from '../../show/state.ts'
import type { Show } from '../../../desk/show/show.ts'

export const LABELS: Readonly<Record<FaultName, string>> = {
  kill: 'Kill a worker',
  freeze: 'Freeze a worker (5 s)',
  cut: 'Cut the network',
  crash: 'Crash PostgreSQL',
}
/** The server and the workers may have to be started first. */
const BEGUN_WITHIN_MS = 60_000
const JUDGED_WITHIN_MS = 180_000

/** What one run has shown. */
export interface Raced {
  readonly naive: number
  readonly lockstep: number
  readonly done: number
  /** Until the page showed a violation on the naive side; Infinity if it never did. */
  readonly firstMs: number
  /** What both sides have done after the last fault. */
  readonly naiveAfter: number
  readonly lockstepAfter: number
}

/** Presses Hammer on the page, then faults again and again, until all checkers have looked. */
export async function race(
  page: Page,
  show: Show,
  card: CardName,
  callers: number,
  faults: readonly FaultName[],
  everyMs: number,
): Promise<Raced> {
  const article = page.locator(`#${card}`)
  const before = stateOf(show, card)
  await article.getByRole('button', { name: `Hammer it with ${callers.toLocaleString('en')} callers` }).click()
  await until(() => isOther(stateOf(show, card), before) && stateOf(show, card)?.phase === 'running', BEGUN_WITHIN_MS)
  const begun = performance.now()
  const shown = article.locator('.naive .violations dd')
  let firstMs = Infinity
  let nextFault = performance.now() + everyMs / 4
  let [naiveAfter, lockstepAfter] = [0, 0]
  const look = async (): Promise<void> => {
    if (firstMs === Infinity && Number(await shown.getAttribute('data-count')) > 0) firstMs = performance.now() - begun
  }
  for (let place = 0; stateOf(show, card)?.phase === 'running';) {
    await look()
    const fault = faults[place % Math.max(1, faults.length)]
    if (fault !== undefined && performance.now() >= nextFault) {
      await article.getByRole('button', { name: LABELS[fault] }).click()
      await until(() => stateOf(show, card)?.striking.includes(fault) === true || isOver(show, card), 10_000)
      await until(() => stateOf(show, card)?.striking.includes(fault) !== true, 60_000)
      const state = stateOf(show, card)
      naiveAfter = state?.naive.done ?? 0
      lockstepAfter = state?.lockstep.done ?? 0
      place++
      nextFault = performance.now() + everyMs
    }
    await sleep(50)
  }
  await until(() => stateOf(show, card)?.judged === true, JUDGED_WITHIN_MS)
  await article.getByText('· checked').waitFor()
  await look()
  const state = stateOf(show, card) as CardState
  return {
    naive: state.naive.violations,
    lockstep: state.lockstep.violations,
    done: state.lockstep.done,
    firstMs: Math.round(firstMs),
    naiveAfter: state.naive.done - naiveAfter,
    lockstepAfter: state.lockstep.done - lockstepAfter,
  }
}

export function stateOf(show: Show, card: CardName): CardState | undefined {
  return show.states.find((state) => state.card === card)
}

function isOver(show: Show, card: CardName): boolean {
  return stateOf(show, card)?.phase !== 'running'
}

/** A run that has begun has an earlier time than the one that is over. */
function isOther(now: CardState | undefined, before: CardState | undefined): boolean {
  return now !== undefined && (before === undefined || now !== before)
}

export async function until(holds: () => boolean, withinMs: number): Promise<void> {
  const deadline = performance.now() + withinMs
  while (!holds()) {
    if (performance.now() > deadline) throw new Error(`It did not happen within ${withinMs} ms: ${holds.toString()}`)
    await sleep(20)
  }
}
