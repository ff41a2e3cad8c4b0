import { execFile } from 'node:child_process'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeAll, expect, inject, test } from 'vitest'
import { areInstalled, install } from '../../tools/dependencies.ts'

const here = fileURLToPath(new URL('.', import.meta.url))
const root = join(here, '../..')
const require = createRequire(import.meta.url)

/** Runs a program on the server of the tests, and gives its output; a failure is its output, too. */
function run(program: string, args: readonly string[]): Promise<{ readonly code: unknown; readonly output: string }> {
  const env = { ...process.env, DATABASE_URL: inject('adminUrl'), NO_COLOR: '1' }
  // Set by our own vitest: with it another one takes itself for a part of it, and node --test for a child.
  for (const name of ['VITEST', 'VITEST_POOL_ID', 'VITEST_WORKER_ID', 'NODE_TEST_CONTEXT', 'NODE_OPTIONS'])
    Reflect.deleteProperty(env, name)
  return new Promise((resolve) => {
    execFile(program, args, { cwd: root, env }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : (error.code ?? error.signal), output: `${stdout}${stderr}` }),
    )
  })
}

test('the example for vitest passes', async () => {
  const program = join(dirname(require.resolve('vitest/package.json')), 'vitest.mjs')
  const { code, output } = await run(process.execPath, [program, 'run', '--root', join(here, 'vitest')])
  expect(output).toMatch(/Tests +3 passed/)
  expect(code).toBe(0)
})

test('the example for node:test passes', async () => {
  const file = join(here, 'node-test/orders.spec.ts')
  const { code, output } = await run(process.execPath, ['--import', 'tsx', '--test', file])
  expect(output).toMatch(/pass 2\b/)
  expect(code).toBe(0)
})

const withJest = join(here, 'jest')
let missing: string | undefined

beforeAll(() => {
  if (areInstalled(withJest)) return
  try {
    install(withJest)
  } catch (error) {
    // Without a registry it is left out; CI leaves nothing out.
    if (process.env['CI'] === 'true') throw error
    missing = String(error)
  }
}, 480_000)

test('the example for jest passes', async ({ skip }) => {
  if (missing !== undefined) skip(missing)
  const config = {
    rootDir: withJest,
    testMatch: ['**/*.spec.js'],
    // The package is its source here: a project of yours needs neither.
    extensionsToTreatAsEsm: ['.ts'],
    transform: { '\\.ts$': join(root, 'tools/test/esbuildTransform.js') },
    moduleNameMapper: {
      '^pg-lockstep$': join(root, 'src/index.ts'),
      '^pg-lockstep/testing$': join(root, 'src/testing/index.ts'),
    },
    cacheDirectory: join(root, '.lockstep/jest'),
  }
  const program = join(withJest, 'node_modules/jest/bin/jest.js')
  const args = ['--experimental-vm-modules', program, '--config', JSON.stringify(config), '--runInBand']
  const { code, output } = await run(process.execPath, args)
  expect(output).toMatch(/Tests: +2 passed/)
  expect(code).toBe(0)
})
