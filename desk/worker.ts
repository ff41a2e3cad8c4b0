/**
 * One process of several that share the desk's port. It is started by workers.ts and ends when it is told to, or when the one that
 * started it is gone. Ctrl-C reaches every process of a terminal: here it means nothing, the supervisor says when it is time.
 */
import { type ServicePlan, startService } from './service.ts'
import { PLAN_VARIABLE, READY, STOP } from './workers.ts'

for (const name of ['SIGINT', 'SIGHUP'] as const) process.on(name, () => {})

const stopped = new Promise<void>((resolve) => {
  process.on('SIGTERM', () => resolve())
  process.on('message', (message) => {
    if (message === STOP) resolve()
  })
})

const plan = JSON.parse(process.env[PLAN_VARIABLE] ?? '') as ServicePlan
const processName = `${plan.processName}:${process.pid}`
const service = await startService({ ...plan, processName }, (line) => console.log(`${processName}: ${line}`))
process.send?.(READY)
await stopped
await service.close()
process.exit(0)
