/** A process that does the work, with the library of a given version. It answers each message: `sample`, `pause`, `stop`. Its argument is its plan. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type * as Library from 'pg-lockstep'
import type * as Http from 'pg-lockstep/http'
import { type DriverName, openClient } from '../attacks/client.ts'
import { CONNECTIONS, type WorkDone, Workload, type WorkloadOptions } from './workload.ts'

export interface WorkloadPlan extends WorkloadOptions {
  readonly driver: DriverName
  readonly url: string
  /** What is imported: names of the package, or files of another version. */
  readonly library: { readonly main: string; readonly http: string }
}

export type Ask = 'sample' | 'pause' | 'stop'

/** Of the process, and of its work since the last sample. */
export interface ProcessSample extends WorkDone {
  /** After a collection. */
  readonly heapBytes: number
  readonly rssBytes: number
  /** Sockets, timers and requests that are open. */
  readonly handles: number
}

const plan = JSON.parse(process.argv[2] as string) as WorkloadPlan
const library = (await import(plan.library.main)) as typeof Library
const http = (await import(plan.library.http)) as typeof Http
const client = openClient(plan.driver, plan.url, {
  poolSize: CONNECTIONS,
  application: plan.name,
  Lockstep: library.Lockstep,
})
const workload = new Workload({ library, http }, client.lockstep, plan)

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

function sample(): ProcessSample {
  // What the first run has made unreachable has been finalized before the second one.
  collect()
  collect()
  const { heapUsed, external, rss } = process.memoryUsage()
  const handles = process.getActiveResourcesInfo().length
  return { heapBytes: heapUsed + external, rssBytes: rss, handles, ...workload.takeDone() }
}

process.on('message', (ask: Ask) => {
  void (async () => {
    if (ask === 'pause') await workload.pause()
    if (ask === 'stop') {
      await workload.stop()
      await client.close()
    }
    process.send?.(sample())
    if (ask === 'stop') process.disconnect()
  })()
})
workload.start()
process.send?.('started')
