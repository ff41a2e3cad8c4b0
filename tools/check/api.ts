import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Check, Fault } from './check.ts'
import { root } from './repository.ts'
import { manifest, tarball } from './tarball.ts'

const UPDATE = 'If the change is meant, run `npm run api` and commit api-reports/.'

/** The public surface changes only together with the reports in api-reports/, where a reviewer sees it. */
export const api: Check = {
  name: 'api',
  async run() {
    // It is built with the tarball.
    await tarball()
    // Loaded here: a compiler that the other checks do not need.
    const { apiReports } = await import('../api/reports.ts')
    const reports = apiReports(root, (await manifest()).exports)
    const folder = join(root, 'api-reports')
    const committed = existsSync(folder) ? readdirSync(folder) : []
    const read = (name: string): string => (committed.includes(name) ? readFileSync(join(folder, name), 'utf8') : '')
    const faults = reports.flatMap(({ name, text }) => reportFaults(name, read(name), text))
    const unknown = committed.filter((file) => !reports.some(({ name }) => name === file))
    faults.push(...unknown.map((file) => `api-reports/${file} is of no entry point. ${UPDATE}`))
    return { faults, note: `${reports.length} reports` }
  },
}

const MOST_LINES = 20

/** Says which lines are new and which are gone: a report has few lines that are equal. */
export function reportFaults(name: string, committed: string, actual: string): Fault[] {
  if (committed === actual) return []
  const [before, after] = [committed.split('\n'), actual.split('\n')]
  const changed = [
    ...before.filter((line) => !after.includes(line)).map((line) => `- ${line}`),
    ...after.filter((line) => !before.includes(line)).map((line) => `+ ${line}`),
  ]
  const shown = changed.length === 0 ? ['(the same lines in another order)'] : changed.slice(0, MOST_LINES)
  const more = changed.length > MOST_LINES ? [`… and ${changed.length - MOST_LINES} more`] : []
  return [[`api-reports/${name}: the public surface has changed. ${UPDATE}`, ...shown, ...more].join('\n')]
}
