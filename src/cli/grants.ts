import { grantsFor, ROLE_NAMES, type RoleName } from '../index.ts'
import type { Command, Outcome } from './command.ts'
import { UsageError } from './usageError.ts'
import { withDatabase } from './withDatabase.ts'

export const grantsCommand: Command = {
  name: 'grants',
  summary: 'Print or apply the grants that a role of the database needs',
  usage: '--to ROLE --as NAMES [--apply]',
  details: `Prints the statements that grant a role of the database exactly what one of Lockstep's roles needs in the schema. They
first revoke what was granted there before, so name all of its roles at once. With --apply it runs them in one transaction:
connect as the owner of the schema. docs/operating/roles.md describes each role.`,
  examples: [
    { line: 'pg-lockstep grants --to shop --as application,producer', does: 'print SQL, without a database' },
    { line: 'pg-lockstep grants --to shop --as application,producer --apply', does: 'run the statements' },
  ],
  options: ['to', 'as', 'apply', 'url', 'schema', 'driver', 'json'],
  words: [],
  async run({ values }) {
    const to = values.to
    if (to === undefined) throw new UsageError('--to is missing.', 'Write --to and the name of a role of the database.')
    const as = rolesOf(values.as)
    if (values.apply === undefined) {
      const schema = values.schema ?? 'lockstep'
      return outcome(grantsFor(schema, { to, as }), { schema, to, as, applied: false })
    }
    return withDatabase(values, async ({ lockstep }) =>
      outcome(await lockstep.grant({ to, as }), { schema: lockstep.schema, to, as, applied: true }),
    )
  },
}

/** The roles of the documentation that an option names, with commas between. */
export function rolesOf(text: string | undefined): RoleName[] {
  const advice = `Write --as and one or more of ${ROLE_NAMES.join(', ')}, with commas between.`
  if (text === undefined) throw new UsageError('--as is missing.', advice)
  return text.split(',').map((name) => {
    const found = ROLE_NAMES.find((each) => each === name)
    if (found === undefined) throw new UsageError(`There is no role ${JSON.stringify(name)}.`, advice)
    return found
  })
}

interface GrantsSummary {
  readonly schema: string
  readonly to: string
  readonly as: readonly RoleName[]
  readonly applied: boolean
}

function outcome(statements: readonly string[], summary: GrantsSummary): Outcome {
  return {
    exitCode: 0,
    json: { ok: true, command: 'grants', ...summary, statements },
    text: () =>
      summary.applied
        ? `The role "${summary.to}" is ${summary.as.join(' and ')} of the schema "${summary.schema}", and nothing else there.`
        : statements.map((statement) => `${statement};`).join('\n'),
  }
}
