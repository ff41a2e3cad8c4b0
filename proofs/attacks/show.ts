import { goal, type Goal } from '../../tools/judge/report.ts'
import { findChromium, launch } from '../../console/browser/chromium.ts'
import { openPage } from '../../console/browser/watchedPage.ts'
import { type RaceSite, startRaceSite } from '../../desk/testing/raceSite.ts'
import { CALLERS, type CardName, CARDS, type FaultName, FAULTS } from '../show/state.ts'
import { attack } from './attack.ts'
import { longestKnown, OBSERVE, TAKE } from './console/screen.ts'
import { type Raced, race } from './show/race.ts'

interface Size {
  /** Of a hammer, with each of the numbers. */
  readonly callers: readonly number[]
  /** The faults of each card. Each has a run of its own. */
  readonly faults: (card: CardName) => readonly FaultName[]
  readonly seconds: number
  /** Callers of the runs with faults. */
  readonly faulted: number
  /** A fault is pressed again after so long. */
  readonly everyMs: number
}

const LONGEST_TASK_MS = 50
const FIRST_VIOLATION_MS = 10_000
/** In the scaled-down size each card has one fault, and all faults have a card. */
const ONE_EACH: Readonly<Record<CardName, FaultName>> = {
  trades: 'crash',
  instances: 'freeze',
  positions: 'kill',
  transfers: 'cut',
  wallets: 'kill',
}

/**
 * The start page in a real browser. It presses every button of every card: the naive side breaks its promise, the side of Lockstep never does,
 * both go on after each fault, and the page stays smooth.
 */
export const showAttack = attack<Size>({
  name: 'show',
  about: 'every button of the start page in a real browser: violations on the naive side, none with Lockstep',
  parts: CARDS,
  full: { callers: CALLERS, faults: () => FAULTS, seconds: 60, faulted: 100, everyMs: 12_000 },
  small: { callers: [], faults: (card) => [ONE_EACH[card]], seconds: 3, faulted: 100, everyMs: 4000 },
  async run(size, reportProgress, _, part) {
    const chromium = findChromium()
    if (chromium === undefined) throw new Error('Chromium is not installed. CHROMIUM_PATH says where it is.')
    const site = await startRaceSite({ seconds: size.seconds })
    const browser = await launch(chromium)
    try {
      const { page, complaints } = await openPage(browser, 'about:blank')
      await page.addInitScript({ content: OBSERVE })
      await page.goto(site.origin)
      await page.locator('.pill').getByText('Live').waitFor()
      const known = await longestKnown(page)
      const rows: (Raced & { what: string; longestTaskMs: number })[] = []
      for (const card of CARDS.filter((each) => part === undefined || each === part)) {
        await page.locator(`#${card}`).getByRole('button', { name: 'Show me the code' }).click()
        for (const [callers, faults] of runsOf(size, card)) {
          const what = `${card}, ${callers} callers${faults.length === 0 ? '' : `, ${faults.join(', ')}`}`
          reportProgress(`show: ${what}`)
          await page.evaluate(TAKE)
          const raced = await race(page, site.show, card, callers, faults, size.everyMs)
          const tasks = await page.evaluate<number[]>(TAKE)
          rows.push({ what, ...raced, longestTaskMs: Math.round(Math.max(0, ...tasks)) })
        }
      }
      return {
        results: rows.map((row) => ({ ...row })),
        goals: [
          ...rows.flatMap(goalsOf),
          goal('control, a task of 200 ms: its length as it was seen', known, '>=', 200),
          goal(`errors on the page: ${complaints.join('; ') || 'none'}`, complaints.length, '<=', 0),
          goal(`what the service reported: ${site.said.join('; ') || 'nothing'}`, site.said.length, '<=', 0),
        ],
      }
    } catch (error) {
      // Without what the service reported, nobody knows why something did not happen.
      throw new Error(`The service reported: ${site.said.join('; ') || 'nothing'}. Its states: ${summary(site.show)}`, {
        cause: error,
      })
    } finally {
      await browser.close()
      await site.close()
    }
  },
})

function summary(show: RaceSite['show']): string {
  const states = show.states.map(({ card, phase, judged, striking, timeline }) => ({
    card,
    phase,
    judged,
    striking,
    timeline,
  }))
  return JSON.stringify({ staged: show.staged, states })
}

function runsOf({ callers, faults, faulted }: Size, card: CardName): (readonly [number, readonly FaultName[]])[] {
  return [...callers.map((each) => [each, []] as const), ...faults(card).map((fault) => [faulted, [fault]] as const)]
}

function goalsOf({
  what,
  naive,
  lockstep,
  firstMs,
  naiveAfter,
  lockstepAfter,
  longestTaskMs,
}: Raced & { what: string; longestTaskMs: number }): Goal[] {
  return [
    goal(`${what}: violations of the naive form`, naive, '>=', 1),
    goal(`${what}: violations of Lockstep`, lockstep, '<=', 0),
    goal(`${what}: done by the naive form after the last fault`, naiveAfter, '>=', 1),
    goal(`${what}: done by Lockstep after the last fault`, lockstepAfter, '>=', 1),
    goal(`${what}: until the first violation is shown, ms`, firstMs, '<=', FIRST_VIOLATION_MS),
    goal(`${what}: the longest task of the page, ms`, longestTaskMs, '<=', LONGEST_TASK_MS),
  ]
}
