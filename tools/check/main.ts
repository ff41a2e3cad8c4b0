/**
 * `npm run check`: everything that can be known about the repository without a database.
 *
 *     npm run check                      all of it
 *     npm run check -- --only lint       one check; repeatable
 */
import { performance } from 'node:perf_hooks'
import { parseArgs } from 'node:util'
import { api } from './api.ts'
import type { Check, CheckResult } from './check.ts'
import { exportsMap } from './exportsMap.ts'
import { format } from './format.ts'
import { imports } from './imports.ts'
import { lint } from './lint.ts'
import { packedPackage } from './packedPackage.ts'
import { tidy } from './tidy.ts'
import { types } from './typesOfEverything.ts'

const checks: readonly Check[] = [tidy, imports, types, lint, format, exportsMap, api, packedPackage]

// Most checks are themselves parallel; two at a time keeps a two-core machine busy without thrashing it.
const checksAtOnce = 2

async function finish(check: Check): Promise<boolean> {
  const startedAt = performance.now()
  const result = await outcome(check)
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
  const failed = result.faults.length > 0
  const note = result.note === undefined ? '' : `  ${result.note}`
  console.log(`${failed ? 'failed' : 'ok    '}  ${check.name.padEnd(9)}${seconds.padStart(6)} s${note}`)
  for (const fault of result.faults) console.log(fault.replaceAll(/^(?=.)/gm, '    '))
  return !failed
}

async function outcome(check: Check): Promise<CheckResult> {
  try {
    return await check.run()
  } catch (error) {
    // A check that breaks is red, and the other checks still get to speak.
    return { faults: [error instanceof Error ? (error.stack ?? error.message) : String(error)] }
  }
}

async function run(wanted: readonly Check[]): Promise<boolean> {
  const queue = [...wanted]
  let allGreen = true
  const worker = async (): Promise<void> => {
    for (let check = queue.shift(); check !== undefined; check = queue.shift()) {
      if (!(await finish(check))) allGreen = false
    }
  }
  await Promise.all(Array.from({ length: checksAtOnce }, worker))
  return allGreen
}

const { values } = parseArgs({ options: { only: { type: 'string', multiple: true } } })
const only = values.only ?? []
const unknown = only.filter((name) => !checks.some((check) => check.name === name))
if (unknown.length > 0) {
  console.error(`no check named ${unknown.join(', ')}; there are ${checks.map((check) => check.name).join(', ')}`)
  process.exitCode = 2
} else {
  const wanted = only.length === 0 ? checks : checks.filter((check) => only.includes(check.name))
  process.exitCode = (await run(wanted)) ? 0 : 1
}
