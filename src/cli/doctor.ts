import type { Finding } from '../index.ts'
import type { Command } from './command.ts'
import { rolesOf } from './grants.ts'
import { table } from './table.ts'
import type { Colour, Terminal } from './terminal.ts'
import { withDatabase } from './withDatabase.ts'

const COLOURS: Readonly<Record<Finding['level'], Colour>> = { ok: 'green', warn: 'yellow', fail: 'red' }

export const doctorCommand: Command = {
  name: 'doctor',
  summary: 'look for what would weaken the promises on this server',
  usage: '[--as NAMES]',
  details: `Tries whether locks exclude here, with several connections, and looks for what would weaken Lockstep's promises on
this server: pooler, standby, schema, clock, settings. It changes nothing, but the schema remembers the trial. A finding "warn" has a price or a risk that can be avoided; "fail" breaks a promise, and the
exit code is 1.`,
  examples: [
    { line: 'pg-lockstep doctor', does: 'in a deploy, after migrate and as the role of the application' },
    { line: 'pg-lockstep doctor --as producer', does: 'also whether its role has exactly the grants of a producer' },
    { line: 'pg-lockstep doctor --json', does: 'for a program: .findings has each with its level' },
  ],
  options: ['as', 'url', 'schema', 'driver', 'json'],
  words: [],
  run({ values }) {
    const as = values.as === undefined ? undefined : rolesOf(values.as)
    return withDatabase(values, async ({ lockstep, driver }) => {
      const findings = (await lockstep.doctor(as === undefined ? {} : { as })).filter(isOfServer)
      const ok = findings.every(({ level }) => level !== 'fail')
      return {
        exitCode: ok ? 0 : 1,
        json: { ok, command: 'doctor', schema: lockstep.schema, driver, findings },
        text: (terminal) => report(findings, terminal),
      }
    })
  },
}

/** The pool that it sees is this program's own, and says nothing of the application's. */
export function isOfServer({ name }: Finding): boolean {
  return name !== 'pool' && name !== 'connects'
}

function report(findings: readonly Finding[], { columns, paint }: Terminal): string {
  const rows = findings.flatMap(({ level, name, found, advice }) => {
    const row = [paint(COLOURS[level], level.padEnd(4)), name, found]
    return advice === '' ? [row] : [row, ['', '', `→ ${advice}`]]
  })
  const count = (level: Finding['level']): number => findings.filter((finding) => finding.level === level).length
  const [warnings, failures] = [count('warn'), count('fail')]
  const rest = warnings === 0 ? '' : ` ${warnings} to look at.`
  const verdict =
    failures === 0
      ? paint('bold', `${findings.length} checks: every promise can be kept here.${rest}`)
      : paint('red', `${findings.length} checks, ${failures} failed: a promise cannot be kept here.${rest}`)
  return `${table(rows, columns)}\n\n${verdict}`
}
