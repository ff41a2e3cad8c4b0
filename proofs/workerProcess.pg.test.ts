import { expect, test } from 'vitest'
import { testDatabase } from '../tools/server/testDatabase.ts'
import { WorkerProcess } from './workerProcess.ts'

const { url } = await testDatabase()

test('has one process after two kills at once', async () => {
  const listener = { entry: () => undefined, answer: () => undefined, lost: () => undefined }
  const worker = new WorkerProcess('w', 'direct', { driver: 'pg', url, directUrl: url, poolSize: 1 }, listener)
  await worker.ready
  await Promise.all([worker.killAndReplace(), worker.killAndReplace()])
  expect(worker.by).toBe("w'")
  await worker.end()
})
