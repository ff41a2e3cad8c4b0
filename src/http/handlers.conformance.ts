import { beforeAll, describe } from 'vitest'
import { type DriverName, DRIVERS, testBench } from '../../tools/server/testing/workbench.ts'
import { answersConform } from './answers.conformance.ts'
import { attemptsConform } from './attempts.conformance.ts'
import { exclusiveConforms } from './exclusive.conformance.ts'
import { idempotentConforms } from './idempotent.conformance.ts'
import { type Site, stageFor } from './site.conformance.ts'

export { BEFORE, type Site } from './site.conformance.ts'

/** What every framework has to do. A framework on another one needs one driver only: what depends on the driver is below both. */
export async function handlersConform<Request>(
  name: string,
  newSite: () => Site<Request>,
  drivers: readonly DriverName[] = DRIVERS,
): Promise<void> {
  const bench = await testBench()
  beforeAll(() => bench.admin.query('CREATE TABLE effects (id text NOT NULL)'))

  describe.each(drivers)(`${name}, %s`, (driver) => {
    const stage = stageFor(bench, driver, newSite)
    exclusiveConforms(bench, stage)
    idempotentConforms(driver, bench, stage)
    attemptsConform(stage)
    answersConform(stage)
  })
}
