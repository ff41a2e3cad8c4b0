import { beforeAll, describe } from 'vitest'
import type { RunningServer } from '../../proofs/attacks/http/servers.ts'
import { DRIVERS, testBench } from '../../tools/server/testing/workbench.ts'
import { answersConform } from './answers.conformance.ts'
import { attemptsConform } from './attempts.conformance.ts'
import { exclusiveConforms } from './exclusive.conformance.ts'
import { idempotentConforms } from './idempotent.conformance.ts'
import { type Site, stageFor } from './site.conformance.ts'

export { BEFORE, type Site } from './site.conformance.ts'

const bench = await testBench()

/** What every framework has to do, on both drivers. */
export function handlersConform<Request>(name: RunningServer['name'], newSite: () => Site<Request>): void {
  beforeAll(() => bench.admin.query('CREATE TABLE effects (id text NOT NULL)'))

  describe.each(DRIVERS)(`${name}, %s`, (driver) => {
    const stage = stageFor(bench, driver, newSite)
    exclusiveConforms(name, bench, stage)
    idempotentConforms(driver, bench, stage)
    attemptsConform(stage)
    answersConform(stage)
  })
}
