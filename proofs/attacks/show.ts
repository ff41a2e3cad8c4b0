import { goal, type Goal } from '../../tools/judge/report.ts'
import { findChromium, launch } from '../../console/browser/chromium.ts'
import { openPage } from '../../console/browser/watchedPage.ts'
import { type RaceSite, startRaceSite } from '../../desk/testing/raceSite.ts'
import { CALLERS, type CardName, CARDS, type FaultName, FAULTS } from '../show/state.ts'
import { attack } from './attack.ts'
import { longestKnown, OBSERVE, TAKE } from './console/screen.ts'
import { begin, everyButton } from './show/everyButton.ts'
import { type Raced, race } from './show/race.ts'

interface Size {
  /** Of a run. */
  readonly seconds: number
  /** Each number of callers and each fault has a run of its own. Otherwise a card has one run, in which every button is pressed once. */
  readonly runs?: {
    /** Callers of the runs with faults. */
    readonly faulted: number
    /** A fault is pressed again after so long. */
    readonly everyMs: number
  }
  /** How long a freeze lasts. It must outlast a lease. */
  readonly freezeMs?: number
}

const LONGEST_TASK_MS = 50
const FIRST_VIOLATION_MS = 10_000
const FIRST_PAINT_MS = 1000
/** What browsers call good is 0.1. */
const LAYOUT_SHIFT = 0.01

interface Row extends Raced {
  readonly what: string
  /** Violations of Lockstep that were shown at any time of the run. */
  readonly shown: number
  readonly longestTaskMs: number
}

// In the browser's own words: this program has no types for them.
const OBSERVE_SHIFTS = `
  window.layoutShift = { sum: 0, of: {} }
  new PerformanceObserver((list) => {
    for (const { hadRecentInput, value, sources } of list.getEntries()) {
      const nodes = sources.map(({ node }) => (node?.nodeType === 3 ? node.parentElement : node))
      // Pictures move: that is what they are for.
      if (hadRecentInput || nodes.every((node) => node?.closest('.picture') != null)) continue
      window.layoutShift.sum += value
      for (const node of nodes) {
        const name = node?.getAttribute('class') || node?.nodeName || 'gone'
        window.layoutShift.of[name] = (window.layoutShift.of[name] ?? 0) + 1
      }
    }
  }).observe({ type: 'layout-shift', buffered: true })`
const FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? Infinity"

/**
 * The start page in a real browser. It presses every button of every card: the naive side breaks its promise, the side of Lockstep never does,
 * both continue after each fault, and the page stays smooth.
 */
export const showAttack = attack<Size>({
  name: 'show',
  about: 'every button of the start page in a real browser: violations on the naive side, none with Lockstep',
  parts: CARDS,
  full: { seconds: 60, runs: { faulted: 100, everyMs: 12_000 } },
  // The runs end by the next press, not by the time.
  small: { seconds: 90, freezeMs: 1500 },
  async run(size, reportProgress, _, part) {
    const chromium = findChromium()
    if (chromium === undefined) throw new Error('Chromium is not installed. CHROMIUM_PATH says where it is.')
    const { seconds, freezeMs, runs } = size
    const site = await startRaceSite({ seconds, ...(freezeMs !== undefined && { freezeMs }) })
    const browser = await launch(chromium)
    try {
      const { page, complaints } = await openPage(browser, 'about:blank')
      await page.addInitScript({ content: OBSERVE })
      await page.addInitScript({ content: OBSERVE_SHIFTS })
      await page.goto(site.origin)
      await page.locator('.pill').getByText('Live').waitFor()
      const firstPaintMs = Math.round(await page.evaluate<number>(FIRST_PAINT))
      const known = await longestKnown(page)
      const rows: Row[] = []
      const measured = async (what: string, play: () => Promise<Raced>): Promise<void> => {
        reportProgress(`show: ${what}`)
        await page.evaluate(TAKE)
        let shown = 0
        const stop = site.show.watch(({ cards: all }) => {
          for (const each of all) if (each.phase !== 'idle') shown = Math.max(shown, each.lockstep.violations)
        })
        const raced = await play().finally(stop)
        const tasks = await page.evaluate<number[]>(TAKE)
        rows.push({ what, ...raced, shown, longestTaskMs: Math.round(Math.max(0, ...tasks)) })
      }
      const cards = CARDS.filter((each) => part === undefined || each === part)
      if (runs === undefined) await begin(page, cards[0] as CardName)
      for (const card of cards) {
        if (runs === undefined) {
          const next = CARDS[(CARDS.indexOf(card) + 1) % CARDS.length] as CardName
          await measured(`${card}, every button`, () => everyButton(page, site.show, card, next))
          continue
        }
        await page.locator(`#${card}`).getByRole('button', { name: 'Show me the code' }).click()
        for (const [callers, faults] of runsOf(runs.faulted)) {
          const what = `${card}, ${callers} callers${faults.length === 0 ? '' : `, ${faults.join(', ')}`}`
          await measured(what, () => race(page, site.show, card, callers, faults, runs.everyMs))
        }
      }
      const shift = await page.evaluate<{ sum: number; of: Record<string, number> }>('window.layoutShift')
      const moved = Object.entries(shift.of).map(([name, times]) => `${name} ${times}`)
      return {
        results: rows.map((row) => ({ ...row })),
        goals: [
          ...rows.flatMap(goalsOf),
          goal('first paint after, ms', firstPaintMs, '<=', FIRST_PAINT_MS),
          goal(
            `layout shift outside of the pictures, without what a press brings: ${moved.join(', ') || 'none'}`,
            shift.sum,
            '<=',
            LAYOUT_SHIFT,
          ),
          goal('control, a task of 200 ms: its length as it was seen', known, '>=', 200),
          goal(`errors on the page: ${complaints.join('; ') || 'none'}`, complaints.length, '<=', 0),
          goal(`what the service reported: ${site.said.join('; ') || 'nothing'}`, site.said.length, '<=', 0),
        ],
      }
    } catch (error) {
      // Without the output of the service it is not known why something did not happen.
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

function runsOf(faulted: number): (readonly [number, readonly FaultName[]])[] {
  return [...CALLERS.map((each) => [each, []] as const), ...FAULTS.map((fault) => [faulted, [fault]] as const)]
}

function goalsOf({ what, naive, lockstep, shown, firstMs, naiveAfter, lockstepAfter, longestTaskMs }: Row): Goal[] {
  return [
    goal(`${what}: violations of the naive form`, naive, '>=', 1),
    goal(`${what}: violations of Lockstep`, lockstep, '<=', 0),
    goal(`${what}: violations of Lockstep, shown at any time`, shown, '<=', 0),
    goal(`${what}: done by the naive form after the last fault`, naiveAfter, '>=', 1),
    goal(`${what}: done by Lockstep after the last fault`, lockstepAfter, '>=', 1),
    goal(`${what}: until the first violation is shown, ms`, firstMs, '<=', FIRST_VIOLATION_MS),
    goal(`${what}: the longest task of the page, ms`, longestTaskMs, '<=', LONGEST_TASK_MS),
  ]
}
