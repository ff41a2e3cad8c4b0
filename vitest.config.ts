import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'
import LongFirst from './tools/test/longFirst.ts'

const manifest = JSON.parse(readFileSync(new URL('./package.json', import.meta.url), 'utf8')) as {
  readonly exports: Readonly<Record<string, string>>
}
const source = fileURLToPath(new URL('./src', import.meta.url))
const entries = Object.entries(manifest.exports)
  .filter(([name]) => name !== './package.json')
  .map(([name, target]) => ({
    find: new RegExp(`^pg-lockstep${name.slice(1)}$`),
    replacement: target.replace(/^\.\/dist(.*)\.js$/, `${source}$1.ts`),
  }))
const folders = '{src,tools,proofs,bench,desk,console,examples,site}'
/** `npm test` runs the library's own tests with a database; `npm cit` runs all. See tools/test/main.ts. */
const libraryOnly = process.env['LOCKSTEP_TESTS'] === 'library'

/**
 * postgres.js asks each new connection for the array types of the server, and handles no error of that question: one that is cut or
 * ended at that moment is an unhandled rejection. Tests cut and end connections all the time. One that our own code ended still
 * fails the run.
 */
function isOfTypesQuestion({ query, stack = '' }: { query?: unknown; stack?: string }): boolean {
  return typeof query === 'string' && query.includes('b.typarray') && !stack.includes('src/postgres/')
}

export default defineConfig({
  resolve: {
    // Tests, examples and the desk use the public names, as a user's program does, but run on the source.
    alias: entries,
  },
  test: {
    // Three for each core of CI. Most files with a database wait more than they compute: of 41 s that boundedOpening.pg.test.ts took on two
    // cores 11 were spent on a processor, of 39 of unreachable.pg.test.ts 11, of 67 of settings.pg.test.ts 20.
    maxWorkers: 6,
    // Servers of tests are copies of what initdb has made there, once a version.
    env: { LOCKSTEP_DATA_TEMPLATES: fileURLToPath(new URL('./.lockstep/data-templates', import.meta.url)) },
    onUnhandledError: (error) => (isOfTypesQuestion(error) ? false : undefined),
    expect: { poll: { interval: 10, timeout: 60_000 } },
    sequence: { sequencer: LongFirst },
    reporters: ['default', './tools/test/failureSummary.ts'],
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: [`${folders}/**/*.unit.test.ts`],
          // One process for many files: a process and its imports cost more than what most of these files do.
          isolate: false,
          testTimeout: 120_000,
          typecheck: {
            // `npm test` has compiled them already, in its check.
            enabled: process.env['LOCKSTEP_BUILT'] !== '1',
            include: ['src/**/*.test-d.ts'],
            tsconfig: './tsconfig.json',
            // `npm run check` reports what is wrong elsewhere.
            ignoreSourceErrors: true,
          },
        },
      },
      {
        extends: true,
        test: {
          name: 'pg',
          include: [`${libraryOnly ? 'src' : folders}/**/*.pg.test.ts`],
          // Each of these starts processes.
          exclude: libraryOnly ? ['src/cli/**'] : [],
          globalSetup: './tools/server/globalSetup.ts',
          // Limits for a machine that is busy with ten other things. No test needs them otherwise, and none asserts that something is quick.
          // `npm run prove:mutants` expects a failure, and sets a shorter one.
          testTimeout: Number(process.env['LOCKSTEP_TEST_LIMIT_MS'] ?? 240_000),
          hookTimeout: Number(process.env['LOCKSTEP_TEST_LIMIT_MS'] ?? 120_000),
        },
      },
    ],
  },
})
