import { writeFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { describeMachine, EXIT_STATUS, type Verdict, verdictOf } from '../tools/judge/report.ts'
import { faults } from './faults/index.ts'
import type { Form } from './history.ts'
import { page } from './report/page.ts'
import { operationsOf, type RunResult } from './report/result.ts'
import { finalTable, LiveScreen } from './report/screen.ts'
import { timeline } from './report/timeline.ts'
import { prove as run } from './run.ts'
import { scenarios } from './scenarios/index.ts'
import { writeTrace } from './trace/trace.ts'

/** What the command line asks for. */
export interface Wanted {
  readonly scenarios: readonly string[]
  readonly faults: readonly string[]
  readonly forms: readonly Form[]
  readonly seed: number
  readonly minutes: number
  readonly against: string | undefined
  readonly anyway: boolean
  /** On three servers under Patroni, with this replication. */
  readonly cluster: 'synchronous' | 'asynchronous' | undefined
  /** Where the HTML report goes. */
  readonly report: string
  /** Where the picture of the first violation of a naive form goes. */
  readonly picture: string | undefined
  /** Where the trace of the outbox goes, which is replayed against the model. */
  readonly trace?: string | undefined
  /** Ends it before its time: what was seen until then is reported, and everything is cleaned up. */
  readonly signal?: AbortSignal
}

export interface Proved {
  readonly verdict: Verdict
  readonly exitCode: number
  readonly json: Readonly<Record<string, unknown>>
  text(): string
}

/** What is missing on this machine for a cluster; undefined where everything is there. */
export { missingForCluster } from '../tools/server/cluster.ts'

export const scenarioNames: readonly string[] = scenarios.map(({ name }) => name)
export const faultNames: readonly string[] = faults.map(({ name }) => name)

/** The race lab, as `lockstep prove` runs it: shows how it goes, writes the report, and gives what to say in the end. */
export async function prove(wanted: Wanted): Promise<Proved> {
  const { seed, minutes, against, anyway, cluster, forms } = wanted
  const screen = new LiveScreen()
  let result: RunResult
  try {
    result = await run(
      {
        scenarios: scenarios.filter(({ name }) => wanted.scenarios.includes(name)),
        faults: faults.filter(
          ({ name, replacesPrimary }) =>
            wanted.faults.includes(name) && (cluster !== undefined || replacesPrimary !== true),
        ),
        forms,
        seed,
        minutes,
        against,
        anyway,
        cluster,
        machine: describeMachine(),
        replay: replayOf(wanted),
        ...(wanted.trace === undefined
          ? {}
          : { trace: (trace) => writeFile(resolve(wanted.trace ?? ''), writeTrace(trace)) }),
        ...(wanted.signal === undefined ? {} : { signal: wanted.signal }),
      },
      ({ result: { scenarios: all, faults: struck }, form, round, doing, elapsedMs, ofMs }) =>
        screen.show({
          elapsedMs,
          totalMs: ofMs,
          doing: `round ${round}, ${form}: ${doing}`,
          scenarios: all,
          faults: struck,
        }),
    )
  } finally {
    screen.end()
  }
  const report = resolve(wanted.report)
  await writeFile(report, page(result))
  const told = [`The report with the pictures: ${report}`]
  if (wanted.picture !== undefined) told.push(await writePicture(wanted.picture, result))
  if (wanted.trace !== undefined) told.push(`The trace of the outbox: ${resolve(wanted.trace)}`)
  const verdict = verdictOf(result.goals)
  return {
    verdict,
    exitCode: EXIT_STATUS[verdict],
    json: { ...jsonOf(result), verdict },
    text: () => `${finalTable(result)}\n\n${told.join('\n')}`,
  }
}

/** As bench and attack print it, with the violations. */
function jsonOf(result: RunResult): Readonly<Record<string, unknown>> {
  const { machine, seed, server, goals, faults: struck, violations, replay, cluster } = result
  const results = result.scenarios.flatMap(({ name, forms }) =>
    Object.entries(forms)
      .filter(([, { rounds }]) => rounds > 0)
      .map(([form, counts]) => ({
        scenario: name,
        form,
        rounds: counts.rounds,
        operations: operationsOf(counts),
        done: counts.done,
        failed: counts.failed,
        unknown: counts.unknown,
        violations: counts.violations,
      })),
  )
  return {
    name: 'prove',
    machine,
    server,
    seed,
    replay,
    results,
    goals,
    faults: struck,
    violations,
    ...(cluster && { cluster }),
  }
}

async function writePicture(file: string, { scenarios: all }: RunResult): Promise<string> {
  const caught = all.map(({ forms: { naive } }) => naive.first).find((first) => first !== undefined)
  if (caught === undefined) return 'No naive form was caught: there is no picture.'
  await writeFile(resolve(file), timeline(caught.history, caught.violation, { scheme: 'auto' }))
  return `The picture: ${resolve(file)}`
}

function replayOf({ scenarios: names, faults: kinds, forms, seed, minutes, against, cluster }: Wanted): string {
  return [
    'npx pg-lockstep prove',
    `--seed ${seed} --minutes ${minutes}`,
    ...(names.length === scenarioNames.length ? [] : [`--scenario ${names.join(',')}`]),
    ...(kinds.length === faultNames.length ? [] : [`--fault ${kinds.join(',') || 'none'}`]),
    ...(forms.length === 1 ? [`--form ${forms[0]}`] : []),
    ...(cluster === undefined ? [] : [cluster === 'synchronous' ? '--cluster' : '--cluster --asynchronous']),
    // It may hold a password.
    ...(against === undefined ? [] : ['--against URL']),
  ].join(' ')
}
