import type { Connection } from './connection.ts'
import type { Finding } from './doctorFinding.ts'
import { rightsInSchema } from './doctor.sql.ts'
import { grantExecute, grantUsage, revokeCreate } from './grants.sql.ts'
import { quoteIdentifier, quoteLiteral } from './identifiers.ts'
import { functionsOf, ROLE_NAMES, type RoleName, ROLES } from './roles.ts'

interface RightsRow {
  readonly role: string
  readonly owner: 'true' | 'false'
  readonly usage: 'true' | 'false'
  readonly create: 'true' | 'false'
  /** Other roles than the owner that can create in the schema. */
  readonly creators: string | null
  /** Lists in JSON. */
  readonly denied: string
  readonly allowed: string
  readonly tables: string
  readonly sequences: string
}

/** What the grants are like, and whether the library can work with them at all. */
export interface GrantsFinding {
  readonly findings: readonly Finding[]
  readonly usable: boolean
}

const NAME = 'grants'

/**
 * Compares what the session's role can do with what the documentation says. Which role it is meant to be, `as` says; without it, the one
 * or those of which it has a function that no other role has.
 */
export async function grantsFinding(
  connection: Connection,
  schema: string,
  as: readonly RoleName[] | undefined,
): Promise<GrantsFinding> {
  const [result] = await connection.script(rightsInSchema(quoteLiteral(schema)))
  const row = result?.rows[0] as unknown as RightsRow | undefined
  // Without a schema, another finding says so.
  if (row === undefined) return { findings: [], usable: true }
  const open = openSchema(schema, row)
  if (row.owner === 'true') {
    const found = `"${row.role}" has the rights of the schema's owner`
    return { findings: open.length > 0 ? open : [{ name: NAME, level: 'ok', found, advice: '' }], usable: true }
  }
  const denied = namesIn(row.denied)
  const allowed = namesIn(row.allowed)
  const roles = as ?? guessed(allowed)
  const wanted = functionsOf(roles.length > 0 ? roles : ['observer']).filter(
    // With no role at all, what every role needs.
    (each) => roles.length > 0 || ROLE_NAMES.every((name) => ROLES[name].functions.includes(each)),
  )
  const missing = wanted.filter((each) => row.usage === 'false' || denied.has(each))
  const tooMany = [
    ...(JSON.parse(row.tables) as string[]),
    ...(JSON.parse(row.sequences) as string[]),
    ...(row.create === 'true' ? ['CREATE on the schema'] : []),
  ]
  const who = roles.length === 0 ? `"${row.role}"` : `"${row.role}" as ${roles.join(' and ')}`
  const command = `npx pg-lockstep grants --to ${row.role} --as ${roles.join(',') || 'ROLE'} --apply`
  const findings: Finding[] = [...open]
  if (missing.length > 0) {
    const place = quoteIdentifier(schema)
    const role = quoteIdentifier(row.role)
    const grants = [
      ...(row.usage === 'false' ? [`${grantUsage(place, role)};`] : []),
      `${grantExecute(place, missing, role)};`,
    ]
    findings.push({
      name: NAME,
      level: 'fail',
      found: `${who} lacks ${row.usage === 'false' ? 'USAGE on the schema' : `EXECUTE on ${missing.join(', ')}`}`,
      advice: `As the owner of the schema, run: ${grants.join(' ')} Or: ${command}`,
    })
  }
  if (tooMany.length > 0) {
    findings.push({
      name: NAME,
      level: 'fail',
      found: `${who} has more than a role needs: ${tooMany.slice(0, 5).join(', ')}${tooMany.length > 5 ? ', …' : ''}`,
      advice: `With it the role can break guarantees that others rely on. As the owner, run: ${command}`,
    })
  }
  const others = [...allowed].filter((each) => !wanted.includes(each))
  if (roles.length > 0 && others.length > 0) {
    findings.push({
      name: NAME,
      level: 'warn',
      found: `${who} can also call ${others.slice(0, 5).join(', ')}${others.length > 5 ? ', …' : ''}`,
      advice: `If that is not meant, run as the owner: ${command}`,
    })
  }
  if (findings.length === 0) {
    findings.push(
      roles.length > 0
        ? { name: NAME, level: 'ok', found: `${who} has exactly the grants of the documentation`, advice: '' }
        : {
            name: NAME,
            level: 'warn',
            found: `${who} can call what every role can, and nothing else`,
            advice: `Run as the owner: ${command}`,
          },
    )
  }
  const usable =
    row.usage === 'true' && ROLES.observer.functions.every((each) => !isOfEveryRole(each) || !denied.has(each))
  return { findings, usable }
}

/** A role that can create in the schema can have functions run with the rights of its owner. Another finding is for the session's own role. */
function openSchema(schema: string, { role, creators }: RightsRow): Finding[] {
  if (creators === null || creators === role || creators === quoteIdentifier(role)) return []
  return [
    {
      name: NAME,
      level: 'fail',
      found: `roles other than the owner can create in the schema "${schema}": ${creators}`,
      advice: `A function of theirs could run with the owner's rights. As the owner, run: ${revokeCreate(quoteIdentifier(schema), creators)};`,
    },
  ]
}

function isOfEveryRole(name: string): boolean {
  return ROLE_NAMES.every((role) => ROLES[role].functions.includes(name))
}

/** The roles of which it has a function that no other has. An operator has all of an observer's, and is recognized by one of its own. */
function guessed(allowed: ReadonlySet<string>): RoleName[] {
  const isOwn = (name: RoleName, each: string): boolean =>
    ROLE_NAMES.every(
      (other) =>
        other === name || (name === 'observer' && other === 'operator') || !ROLES[other].functions.includes(each),
    )
  const found = ROLE_NAMES.filter((name) =>
    ROLES[name].functions.some((each) => allowed.has(each) && isOwn(name, each)),
  )
  return found.includes('operator') ? found.filter((name) => name !== 'observer') : found
}

/** As `ROLES` names them: with arguments only where it does. */
function namesIn(list: string): Set<string> {
  const withArguments = new Set(
    ROLE_NAMES.flatMap((name) => ROLES[name].functions).filter((each) => each.includes('(')),
  )
  return new Set(
    (JSON.parse(list) as string[]).map((signature) => {
      const name = signature.slice(0, signature.indexOf('('))
      const types = signature
        .slice(name.length + 1, -1)
        .split(', ')
        .map((each) => each.slice(each.indexOf(' ') + 1))
        .join(', ')
      const exact = `${name}(${types})`
      if (withArguments.has(exact)) return exact
      return [...withArguments].some((each) => each.startsWith(`${name}(`)) ? exact : name
    }),
  )
}
