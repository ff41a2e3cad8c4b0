import type { Finding } from '../index.ts'
import type { Command } from './command.ts'
import { rolesOf } from './grants.ts'
import { table } from './table.ts'
import type { Colour, Terminal } from './terminal.ts'
import { withDatabase } from './withDatabase.ts'

const COLOURS: Readonly<Record<Finding['level'], Colour>> = { ok: 'green', warn: 'yellow', fail: 'red' }

export const doctorCommand: Command = {
  name: 'doctor',
  summary: 'Check the server for everything that weakens the guarantees',
  usage: '[--as NAMES]',
  details: `Tests with several connections whether locks exclude each other on this server, and checks what weakens Lockstep's
guarantees: pooler, standby, schema, clock, settings. It changes nothing, except that the schema records the test. "warn" is
a cost or a risk that you can avoid. "fail" is a broken guarantee, and the exit code is 1.`,
  examples: [
    { line: 'pg-lockstep doctor', does: 'in a deploy: after migrate, as the role of the application' },
    { line: 'pg-lockstep doctor --as producer', does: 'also check that the role has exactly the grants of a producer' },
    { line: 'pg-lockstep doctor --json', does: 'for programs: .findings lists each check with its level' },
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
      ? paint('bold', `${findings.length} checks: Lockstep can keep every guarantee here.${rest}`)
      : paint('red', `${findings.length} checks, ${failures} failed: Lockstep cannot keep a guarantee here.${rest}`)
  return `${table(rows, columns)}\n\n${verdict}`
}
