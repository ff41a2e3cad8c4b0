import { existsSync } from 'node:fs'
import { type Browser, chromium } from 'playwright-core'

const PLACES = [
  process.env['CHROMIUM_PATH'],
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
  '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
]

/** A browser of this machine; undefined where there is none, which is said aloud and which CI does not allow. */
export function findChromium(): string | undefined {
  const found = PLACES.find((place) => place !== undefined && existsSync(place))
  if (found !== undefined) return found
  const missing = 'Chromium is not installed: the tests of the console in a browser are SKIPPED'
  if (process.env['CI'] === 'true')
    throw new Error(`${missing}, which CI=true forbids. CHROMIUM_PATH says where it is.`)
  console.warn(missing)
  return undefined
}

export function launch(executablePath: string): Promise<Browser> {
  return chromium.launch({
    executablePath,
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking'],
  })
}
