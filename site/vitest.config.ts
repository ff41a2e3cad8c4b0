import { defineConfig } from 'vitest/config'

/** The tests of the built site in a browser: `npm run docs:test`. */
export default defineConfig({
  root: new URL('..', import.meta.url).pathname,
  test: {
    include: ['site/browser/*.browser.test.ts'],
    testTimeout: 600_000,
    hookTimeout: 120_000,
    expect: { poll: { interval: 20, timeout: 60_000 } },
  },
})
