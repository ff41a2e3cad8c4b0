import pg from 'pg'
import type { RoleName } from 'pg-lockstep'
import { type Goal, goal } from '../../../tools/judge/report.ts'
import type { ReportProgress } from '../attack.ts'
import type { Edge } from '../edges/edge.ts'
import {
  BEGIN_ATTEMPT,
  callWithNulls,
  createRole,
  dropForgotten,
  dropRole,
  dropSchema,
  END_ATTEMPT,
  forgottenFunction,
  grantTables,
  type ObjectRow,
  OBJECTS,
  schemaAttempts,
  sequenceAttempts,
  tableAttempts,
} from './roles.sql.ts'
import { documentedRoles } from './rolesPage.ts'

const SCHEMA = 'besieged'
const DENIED = '42501'

/** What a role got through with. */
interface Reach {
  readonly tables: readonly string[]
  readonly functions: ReadonlySet<string>
  readonly schema: readonly string[]
}

/**
 * Each role of the documentation, and one that can only connect, tries every table, sequence and function that the catalogs list. What it
 * can do must be exactly its column of the page. The controls: a role with grants on tables, and a function that was left to the public.
 */
export const roles: Edge = {
  name: 'roles',
  async run({ lab, driver, reportProgress }) {
    const { admin } = lab
    const client = lab.client(driver, lab.url('direct'), { schema: SCHEMA })
    await admin.query(dropSchema(SCHEMA))
    await client.lockstep.migrate()
    const page = await documentedRoles()
    const goals: Goal[] = []
    try {
      for (const [name, documented] of page) {
        const reach = await reachOf(admin, lab.url('direct'), `intruder_${name}`, async (role) => {
          await client.lockstep.grant({ to: role, as: name as RoleName })
        })
        goals.push(...goalsOf(reportProgress, `the ${name}`, reach, documented))
      }
      const nobody = await reachOf(admin, lab.url('direct'), 'intruder_nobody', async () => undefined)
      goals.push(...goalsOf(reportProgress, 'a role that can only connect', nobody, new Set()))

      const old = await reachOf(admin, lab.url('direct'), 'intruder_old', (role) =>
        admin.query(grantTables(SCHEMA, role)),
      )
      goals.push(goal('control, a role with grants on tables: tables that it reaches', old.tables.length, '>=', 1))
      await admin.query(forgottenFunction(SCHEMA))
      const found = await reachOf(admin, lab.url('direct'), 'intruder_producer', (role) =>
        client.lockstep.grant({ to: role, as: 'producer' }),
      )
      await admin.query(dropForgotten(SCHEMA))
      const beyond = [...found.functions].filter((each) => page.get('producer')?.has(each) !== true)
      goals.push(goal('control, a function left to the public: functions beyond the page', beyond.length, '>=', 1))
    } finally {
      await client.close()
      await admin.query(dropSchema(SCHEMA))
    }
    return goals
  },
}

function goalsOf(reportProgress: ReportProgress, who: string, reach: Reach, documented: ReadonlySet<string>): Goal[] {
  const found = {
    'tables and sequences that it reaches': reach.tables,
    'changes to the schema that it makes': reach.schema,
    'functions beyond its column of the page': [...reach.functions].filter((each) => !documented.has(each)),
    'functions of its column that it cannot call': [...documented].filter((each) => !reach.functions.has(each)),
  }
  return Object.entries(found).map(([what, list]) => {
    if (list.length > 0) reportProgress(`intruder: ${who}: ${what}: ${list.slice(0, 10).join('; ')}`)
    return goal(`${who}: ${what}`, list.length, '=', 0)
  })
}

/** Makes the role, has it granted something, and tries everything as that role. */
async function reachOf(
  admin: pg.Pool,
  url: string,
  role: string,
  grant: (role: string) => Promise<unknown>,
): Promise<Reach> {
  await admin.query(createRole(role))
  const own = new URL(url)
  own.username = role
  const intruder = new pg.Client({ connectionString: own.href })
  try {
    await grant(role)
    await intruder.connect()
    const { rows } = await admin.query<ObjectRow>(OBJECTS, [SCHEMA])
    const overloaded = new Set(rows.map(({ name }) => name).filter((name, place, all) => all.indexOf(name) !== place))
    const tables: string[] = []
    const functions = new Set<string>()
    for (const object of rows) {
      if (object.kind === 'function') {
        const called = overloaded.has(object.name)
          ? `${object.plain}(${(object.types ?? []).join(', ')})`
          : object.plain
        if (!(await isDenied(intruder, callWithNulls(object)))) functions.add(called)
      } else {
        const attempts = object.kind === 'table' ? tableAttempts(object) : sequenceAttempts(object)
        for (const attempt of attempts) if (!(await isDenied(intruder, attempt))) tables.push(attempt)
      }
    }
    const schema: string[] = []
    for (const attempt of schemaAttempts(SCHEMA)) if (!(await isDenied(intruder, attempt))) schema.push(attempt)
    return { tables, functions, schema }
  } finally {
    await intruder.end()
    await admin.query(dropRole(role))
  }
}

/** Anything but a refusal for want of a right is access, also an error that comes after it. */
async function isDenied(intruder: pg.Client, attempt: string): Promise<boolean> {
  await intruder.query(BEGIN_ATTEMPT)
  try {
    await intruder.query(attempt)
    return false
  } catch (error) {
    return (error as { code?: string }).code === DENIED
  } finally {
    await intruder.query(END_ATTEMPT)
  }
}
