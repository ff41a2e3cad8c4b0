/**
 * One process of several that share the desk's port. It is started by workers.ts and ends on request, or when the one that
 * started it is gone. Ctrl-C reaches every process of a terminal: here it means nothing, the supervisor says when it is time.
 */
import type { MetricsMessage } from './allMetrics.ts'
import { type ServicePlan, startService } from './service.ts'
import { SYSTEMS } from './systems.ts'
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
const texts = new Map<number, { resolve: (text: string) => void; reject: (error: Error) => void }>()
let asked = 0
const service = await startService(
  { ...plan, processName },
  (line) => console.log(`${processName}: ${line}`),
  SYSTEMS,
  () =>
    new Promise((resolve, reject) => {
      texts.set(++asked, { resolve, reject })
      send({ metrics: 'text wanted', id: asked })
    }),
)
process.on('message', (message: string | MetricsMessage) => {
  if (typeof message === 'string') return
  if (message.metrics === 'snapshot wanted') {
    // One that fails is late for the supervisor, which shows what it had.
    service.metrics.snapshot().then(
      (snapshot) => send({ metrics: 'snapshot', snapshot }),
      () => undefined,
    )
  } else if (message.metrics === 'text' || message.metrics === 'text failed') {
    const asking = texts.get(message.id)
    texts.delete(message.id)
    if (message.metrics === 'text') asking?.resolve(message.text)
    else asking?.reject(new Error(`The metrics of all processes cannot be read: ${message.reason}`))
  }
})
process.send?.(READY)
await stopped
await service.close()
process.exit(0)

function send(message: MetricsMessage): void {
  process.send?.(message)
}
