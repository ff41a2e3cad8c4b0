import { BaseSequencer, type TestSpecification } from 'vitest/node'

/**
 * Those that take longest. Left to itself, vitest begins with the largest files, and these are small. Attacks, deliveries, bench, prove and
 * load start processes of their own and fill two cores; the others mostly wait. They alternate, so that no more than two of the first
 * kind run at a time.
 */
const LONG = [
  'proofs/attacks/attacks.pg.test.ts',
  'bench/bench.pg.test.ts',
  'src/postgres/settings.pg.test.ts',
  'src/outbox/retentionGuarantees.pg.test.ts',
  'proofs/attacks/deliveries.pg.test.ts',
  'src/outbox/otherServers.pg.test.ts',
  'src/transactions/boundedOpening.pg.test.ts',
  'proofs/prove.pg.test.ts',
  'src/leases/waiting.pg.test.ts',
  'examples/testing/testing.pg.test.ts',
  'src/leases/unreachable.pg.test.ts',
  'src/outbox/otherSessions.pg.test.ts',
  'src/cli/doctor.pg.test.ts',
  'desk/load/load.pg.test.ts',
]

/**
 * Begins with what takes longest, so that no worker is left alone with it in the end. Ends with the files without a database: a process
 * continues with the next of them only if that comes next in the queue.
 */
export default class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId, project }: TestSpecification): number => {
      if (project.name === 'unit') return LONG.length + 1
      const place = LONG.findIndex((name) => moduleId.endsWith(`/${name}`))
      return place === -1 ? LONG.length : place
    }
    // oxlint-disable-next-line unicorn/no-array-sort -- This is vitest's own.
    const bySize = await super.sort(files)
    return bySize.toSorted((one, other) => rank(one) - rank(other))
  }
}
