/**
 * The last step of `npm test`: the tests of the library, or all tests.
 *
 *     npm test                    the library, within a few minutes
 *     npm test -- src/leases      what vitest is given, of all tests
 *     npm test -- --whole         everything: command line, desk, console in a browser, attacks and benches scaled down
 *     npm cit                     everything; so does CI=true
 */
import { spawnSync } from 'node:child_process'

const given = process.argv.slice(2).filter((argument) => argument !== '--whole')
const whole =
  given.length > 0 ||
  process.argv.includes('--whole') ||
  process.env['CI'] === 'true' ||
  process.env['npm_command'] === 'install-ci-test'

const { status } = spawnSync('vitest', ['run', ...given], {
  stdio: 'inherit',
  env: { ...process.env, LOCKSTEP_BUILT: '1', ...(whole ? {} : { LOCKSTEP_TESTS: 'library' }) },
})
if (!whole && status === 0) console.log('The tests of the library passed. `npm test -- --whole` runs all tests.')
process.exitCode = status ?? 1
