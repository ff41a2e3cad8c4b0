import { defineConfig } from 'vitest/config'
import base from '../../../vitest.config.ts'

/** As the root's, for the tests that need Next.js. */
export default defineConfig({
  ...base,
  root: new URL('../../..', import.meta.url).pathname,
  test: {
    ...base.test,
    reporters: ['default'],
    projects: [
      {
        extends: true,
        test: {
          name: 'next',
          include: ['tools/bundles/conformance/*.next.test.ts'],
          globalSetup: './tools/server/globalSetup.ts',
          testTimeout: 240_000,
          hookTimeout: 120_000,
        },
      },
    ],
  },
})
