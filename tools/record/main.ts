/**
 * `npm run record`: makes the recording and the pictures of the start page, and the pictures of the console. It starts the race, presses the buttons
 * in a real browser, and takes screenshots. img2webp (Debian: webp) makes the recording from them. A test of the console takes its pictures.
 *
 *     npm run record                  everything
 *     npm run record -- recording     or `pictures`, or `console`
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtemp, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Browser, Page } from 'playwright-core'
import { findChromium, launch } from '../../console/browser/chromium.ts'
import { startRaceSite } from '../../desk/testing/raceSite.ts'
import type { Show } from '../../desk/show/show.ts'
import { CARDS, type CardName } from '../../proofs/show/state.ts'
import { findProgram } from '../server/findProgram.ts'

const PICTURES = fileURLToPath(new URL('../../docs/pictures/', import.meta.url))
const RECORDING = join(PICTURES, 'race.webp')
const MOST_BYTES = 1_500_000
const FRAME_MS = 200
/** The recording is of one card, as it stands in the page. */
const RECORDED: CardName = 'trades'
const WIDTH = 1040

function ensureWebp(): void {
  if (findProgram('img2webp') !== undefined) return
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  spawnSync('apt-get', ['-qq', 'install', '--yes', '--no-install-recommends', 'webp'], { env, stdio: 'inherit' })
  if (findProgram('img2webp') === undefined) throw new Error('img2webp is not there. Install it: apt-get install webp')
}

function phaseOf(show: Show, card: CardName): string {
  return show.states.find((state) => state.card === card)?.phase ?? 'none'
}

async function until(holds: () => boolean): Promise<void> {
  const deadline = performance.now() + 120_000
  while (!holds()) {
    if (performance.now() > deadline) throw new Error(`It did not happen: ${holds.toString()}`)
    await sleep(50)
  }
}

async function openRace(
  browser: Browser,
  origin: string,
  colorScheme: 'light' | 'dark',
  width: number,
  height: number,
) {
  const page = await browser.newPage({ viewport: { width, height }, colorScheme })
  await page.goto(origin)
  await page.locator('.pill').getByText('Live').waitFor()
  return page
}

const press = (page: Page, card: CardName, name: string): Promise<void> =>
  page.locator(`#${card}`).getByRole('button', { name }).click()

/** Hammer, a kill and a crash, until all checkers have looked. */
async function record(browser: Browser, origin: string, show: Show): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), 'lockstep-record-'))
  try {
    const page = await openRace(browser, origin, 'light', WIDTH, 620)
    const card = page.locator(`#${RECORDED}`)
    const files: string[] = []
    const take = async (): Promise<void> => {
      const file = join(folder, `${String(files.length).padStart(4, '0')}.png`)
      await card.screenshot({ path: file })
      files.push(file)
    }
    await take()
    await press(page, RECORDED, 'Hammer it with 100 callers')
    await until(() => phaseOf(show, RECORDED) === 'running')
    const script = [
      { atMs: 2500, name: 'Kill a worker' },
      { atMs: 6000, name: 'Crash PostgreSQL' },
    ]
    const begun = performance.now()
    while (phaseOf(show, RECORDED) !== 'idle') {
      const next = performance.now() + FRAME_MS
      const due = script[0]
      if (due !== undefined && performance.now() - begun > due.atMs) {
        script.shift()
        await press(page, RECORDED, due.name)
      }
      await take()
      await sleep(Math.max(0, next - performance.now()))
    }
    await take()
    await page.close()
    const frames = files.flatMap((file, place) => [
      '-d',
      place === 0 ? '1200' : place === files.length - 1 ? '5000' : String(FRAME_MS),
      '-lossy',
      '-q',
      '60',
      '-m',
      '6',
      file,
    ])
    execFileSync('img2webp', ['-loop', '0', '-min_size', ...frames, '-o', RECORDING], {
      stdio: ['ignore', 'ignore', 'inherit'],
    })
    return (await stat(RECORDING)).size
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** All cards during a run, and the page after it: in both themes, and on a phone. */
async function takePictures(browser: Browser, origin: string, show: Show): Promise<void> {
  const pages = [
    { page: await openRace(browser, origin, 'light', 1280, 900), suffix: '' },
    { page: await openRace(browser, origin, 'dark', 1280, 900), suffix: '-dark' },
  ]
  const [{ page: light }] = pages as [(typeof pages)[number]]
  for (const card of CARDS) {
    await press(light, card, 'Hammer it with 100 callers')
    await until(() => phaseOf(show, card) === 'running')
    await sleep(4000)
    // In the middle of it: the picture moves.
    for (const { page, suffix } of pages)
      await page.locator(`#${card}`).screenshot({ path: join(PICTURES, `race-${card}${suffix}.png`) })
    await until(() => phaseOf(show, card) === 'idle')
  }
  for (const { page, suffix } of pages) {
    await page.evaluate('window.scrollTo(0, 0)')
    await page.screenshot({ path: join(PICTURES, `race${suffix}.png`) })
    await press(page, 'wallets', 'Show me the code')
    await page.locator('#wallets').screenshot({ path: join(PICTURES, `race-code${suffix}.png`) })
    await page.goto(`${origin}/measured`)
    await page.screenshot({ path: join(PICTURES, `race-measured${suffix}.png`) })
    await page.close()
  }
  for (const theme of ['light', 'dark'] as const) {
    const phone = await openRace(browser, origin, theme, 390, 844)
    await phone.evaluate("document.getElementById('trades').scrollIntoView()")
    await phone.screenshot({ path: join(PICTURES, `race-phone${theme === 'dark' ? '-dark' : ''}.png`) })
    await phone.close()
  }
}

/** The test of the console that looks at each tab in both themes writes what it sees. */
function takeConsolePictures(): void {
  const test = ['vitest', 'run', '--project', 'pg', 'console/browser/console.pg.test.ts', '-t', 'takes the pictures']
  execFileSync('npx', test, { stdio: 'inherit', env: { ...process.env, UPDATE_PICTURES: '1' } })
}

async function recordRace(chromium: string, what: 'recording' | 'pictures' | undefined): Promise<void> {
  const site = await startRaceSite()
  const browser = await launch(chromium)
  try {
    if (what !== 'pictures') {
      const bytes = await record(browser, site.origin, site.show)
      console.log(`docs/pictures/race.webp: ${Math.round(bytes / 1000)} kB`)
      if (bytes > MOST_BYTES) throw new Error(`The recording is larger than ${MOST_BYTES} bytes.`)
    }
    if (what !== 'recording') await takePictures(browser, site.origin, site.show)
  } finally {
    await browser.close()
    await site.close()
  }
}

const WHAT = ['recording', 'pictures', 'console'] as const
const only = WHAT.find((each) => each === process.argv[2])
if (process.argv.length > 2 && only === undefined) throw new Error(`npm run record makes ${WHAT.join(', ')}.`)
const chromium = findChromium()
if (chromium === undefined) throw new Error('Chromium is not installed. CHROMIUM_PATH says where it is.')
if (only === undefined || only === 'recording') ensureWebp()
if (only !== 'console') await recordRace(chromium, only)
if (only === undefined || only === 'console') takeConsolePictures()
