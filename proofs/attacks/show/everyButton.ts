import type { Page } from 'playwright-core'
import type { Show } from '../../../desk/show/show.ts'
import { CALLERS, type CardName, type CardState, FAULTS } from '../../show/state.ts'
import { LABELS, type Raced, stateOf, until } from './race.ts'

/** Signals, not times: a busy machine may take long for each. */
const PATIENCE_MS = 120_000
/** Pressed first, to begin with a card. */
const [FEWEST] = CALLERS
/** The last one is the run that faults strike. */
const PRESSED = [...CALLERS.filter((callers) => callers !== FEWEST && callers !== 100), 100]

/**
 * Presses every button of a card once, each when the one before has shown what it does. The card has been begun already. Its run goes on until
 * another card is begun, `next`: then all checkers look.
 */
export async function everyButton(page: Page, show: Show, card: CardName, next: CardName): Promise<Raced> {
  const article = page.locator(`#${card}`)
  const state = (): CardState | undefined => stateOf(show, card)
  const code = article.getByRole('button', { name: 'Show me the code' })
  await code.click()
  await article.locator('pre code').first().waitFor()
  await article.getByRole('button', { name: 'Hide the code' }).click()
  await article.locator('pre code').first().waitFor({ state: 'detached' })

  for (const callers of PRESSED) await pressHammer(page, card, callers)
  await until(() => state()?.callers === PRESSED.at(-1) && state()?.phase === 'running', PATIENCE_MS)
  const begun = performance.now()
  await article.locator('.naive .violations dd:not([data-count="0"]):not([data-count=""])').waitFor()
  const firstMs = Math.round(performance.now() - begun)

  for (const fault of FAULTS) {
    await article.getByRole('button', { name: LABELS[fault] }).click()
    await until(() => state()?.timeline.some(({ kind }) => kind === fault) === true, PATIENCE_MS)
  }
  await until(() => state()?.striking.length === 0, PATIENCE_MS)
  const struck = state() as CardState
  const failed = struck.timeline.filter(({ text }) => text.includes('It failed'))
  if (failed.length > 0) throw new Error(failed.map(({ text }) => text).join(' '))
  // Both sides come back.
  await until(() => isFurther(state(), struck), PATIENCE_MS)

  await begin(page, next)
  await until(() => state()?.judged === true, PATIENCE_MS)
  await article.getByText('· checked').waitFor()
  const { naive, lockstep } = state() as CardState
  return {
    firstMs,
    naive: naive.violations,
    lockstep: lockstep.violations,
    done: lockstep.done,
    naiveAfter: naive.done - struck.naive.done,
    lockstepAfter: lockstep.done - struck.lockstep.done,
  }
}

/** With the fewest callers, by the keyboard. */
export function begin(page: Page, card: CardName): Promise<void> {
  return pressHammer(page, card, FEWEST)
}

async function pressHammer(page: Page, card: CardName, callers: number): Promise<void> {
  const button = page
    .locator(`#${card}`)
    .getByRole('button', { name: `Hammer it with ${callers.toLocaleString('en')} callers` })
  const answered = page.waitForResponse((response) => response.url().endsWith(`/show/cards/${card}/hammer`))
  if (callers === FEWEST) await button.press('Enter')
  else await button.click()
  const status = (await answered).status()
  if (status !== 202) throw new Error(`Hammer with ${callers} callers was answered with ${status}.`)
}

function isFurther(now: CardState | undefined, before: CardState): boolean {
  return now !== undefined && now.naive.done > before.naive.done && now.lockstep.done > before.lockstep.done
}
