/** The example of Next.js in development: one Lockstep stays over hot reloads, and the guards of new copies of the library work with it. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { makeNextProject, nextProgram } from '../../apps/nextApp.ts'
import { TABLES } from '../../apps/tables.sql.ts'
import { installConsumer } from '../../check/consumer.ts'
import { root } from '../../check/repository.ts'
import { pack } from '../../check/tarball.ts'
import { freePort } from '../../server/freePort.ts'
import { testBench } from '../../server/testing/workbench.ts'
import { key } from '../../../src/index.ts'

const bench = await testBench()
const parent = await mkdtemp(join(tmpdir(), 'lockstep-hot-'))
let server: ChildProcess | undefined
afterAll(async () => {
  if (server !== undefined && server.exitCode === null) {
    const exited = once(server, 'exit')
    // Next.js starts a process of its own for the server.
    process.kill(-(server.pid as number), 'SIGKILL')
    await exited
  }
  await rm(parent, { recursive: true, force: true })
})

test('one Lockstep over hot reloads: 409 stays 409, and no second pool is opened', async ({ onTestFailed }) => {
  await bench.admin.query(TABLES)
  const { packageDirectory } = await installConsumer(parent, (await pack()).path)
  const project = join(parent, 'next')
  await makeNextProject(project, join(root, 'examples', 'next'), packageDirectory)
  const port = await freePort()
  const compiler = process.env['LOCKSTEP_COMPILER'] === 'webpack' ? 'webpack' : 'turbopack'
  const url = new URL(bench.url)
  url.searchParams.set('application_name', 'hot')
  server = spawn(
    process.execPath,
    [nextProgram(project), 'dev', `--${compiler}`, '--hostname', '127.0.0.1', '--port', String(port)],
    {
      cwd: project,
      env: { ...process.env, NODE_ENV: 'development', NEXT_TELEMETRY_DISABLED: '1', DATABASE_URL: url.href },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    },
  )
  let output = ''
  for (const stream of [server.stdout, server.stderr]) stream?.on('data', (chunk: Buffer) => (output += String(chunk)))
  // What does not compile is 500 to the client, and the reason stands there.
  onTestFailed(() => void process.stderr.write(output.slice(0, 20_000)))
  const ask = async (): Promise<[number, string]> => {
    const headers = { authorization: 'Bearer key-of-alice' }
    const response = await fetch(`http://127.0.0.1:${port}/instances/hot/next`, { method: 'POST', headers })
    return [response.status, await response.text()]
  }
  const status = (): Promise<number> =>
    ask().then(
      ([each]) => each,
      () => 0,
    )
  await expect.poll(status, { timeout: 120_000, interval: 200 }).toBe(200)
  const { lockstep } = bench.open('pg')
  const route = join(project, 'app', 'instances', '[id]', 'next', 'route.js')
  for (const version of ['second', 'third']) {
    for (const file of [route, join(project, 'lockstep.js')]) {
      const text = await readFile(file, 'utf8')
      const changed = text.replace(/step: last \+ 1(, version: '\w+')? \}/, `step: last + 1, version: '${version}' }`)
      await writeFile(file, `${changed}\n// ${version}\n`)
    }
    await expect.poll(async () => (await ask())[1], { timeout: 120_000, interval: 200 }).toContain(version)
    await lockstep.lease(key`Instance:hot`, { waitMs: 10_000 }, async () => expect(await status()).toBe(409))
  }
  const { rows } = await bench.admin.query<{ count: number }>(
    `SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'hot'`,
  )
  // As many as one pool may have.
  expect(rows[0]?.count).toBeLessThanOrEqual(8)
  const { rowCount } = await bench.admin.query('SELECT FROM steps GROUP BY instance, step HAVING count(*) > 1')
  expect(rowCount).toBe(0)
})
