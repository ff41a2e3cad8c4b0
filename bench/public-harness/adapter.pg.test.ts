import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { nodeArguments } from '../../tools/server/nodeArguments.ts'
import { testBench } from '../../tools/server/testing/workbench.ts'

/** The harness itself is not here. Its contract for adapters is. */

const bench = await testBench()

const MANIFEST = fileURLToPath(new URL('adapter.json', import.meta.url))
const REQUIRED = ['claim_p50_ms', 'claim_p95_ms', 'claim_p99_ms', 'enqueue_rate', 'completion_rate', 'queue_depth']

function start(name: 'adapter' | 'audit', env: Readonly<Record<string, string>> = {}): ReturnType<typeof spawn> {
  return spawn(process.execPath, nodeArguments(new URL(`${name}.ts`, import.meta.url)), {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { ...process.env, DATABASE_URL: bench.url, LOCKSTEP_AUDIT: '1', LOCKSTEP_MANIFEST: MANIFEST, ...env },
  })
}

async function audit(): Promise<unknown> {
  const child = start('audit')
  let out = ''
  child.stdout?.on('data', (text: Buffer) => (out += text.toString()))
  expect(await once(child, 'close')).toEqual([0, null])
  return JSON.parse(out)
}

test('the adapter follows the orders of the harness, and the audit finds what is wrong', async () => {
  const adapter = start('adapter', { PRODUCER_PACING: 'harness', PRODUCER_RATE: '100', SAMPLE_EVERY_S: '1' })
  try {
    const metrics = new Map<string, number>()
    let descriptor: unknown
    createInterface({ input: adapter.stdout as NodeJS.ReadableStream }).on('line', (line) => {
      const record = JSON.parse(line) as { kind: string; metric?: string; value?: number }
      if (record.kind === 'descriptor') descriptor = record
      else metrics.set(record.metric ?? '', record.value ?? Number.NaN)
    })
    adapter.stdin?.write('ENQUEUE 40\nENQUEUE 60\n')
    await expect.poll(() => metrics.get('claim_p50_ms')).toBeGreaterThan(0)
    expect(descriptor).toMatchObject({ system: 'lockstep', extensions: [], instance_id: 0 })
    expect([...metrics.keys()]).toEqual(expect.arrayContaining(REQUIRED))
  } finally {
    adapter.kill('SIGTERM')
  }
  expect(await once(adapter, 'exit')).toEqual([0, null])
  expect(await audit()).toEqual({ enqueued: 100, lost: 0, twice: 0, disordered: 0, parked: 0 })
  await bench.admin.query(`
    DELETE FROM bench_effects WHERE place = (SELECT max(place) FROM bench_effects);
    INSERT INTO bench_effects (key, seq) VALUES ('other', 2), ('other', 2), ('other', 2), ('other', 1);
    INSERT INTO bench_batches (jobs) VALUES (3)`)
  expect(await audit()).toEqual({ enqueued: 103, lost: 2, twice: 2, disordered: 1, parked: 0 })
})
