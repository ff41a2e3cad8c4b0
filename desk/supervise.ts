import { AllMetrics } from './allMetrics.ts'
import { choosePort } from './choosePort.ts'
import { startSeparateConsole } from './separateConsole.ts'
import { startExchange } from './exchange/server.ts'
import type { DeskOptions } from './options.ts'
import { originOf } from './origin.ts'
import { prepare } from './prepare.ts'
import { type ServicePlan, startService } from './service.ts'
import { Show } from './show/show.ts'
import { SYSTEMS } from './systems.ts'
import { startTraffic } from './traffic/index.ts'
import { Workers } from './workers.ts'

/** The desk, as a whole. */
export interface Running {
  readonly origin: string
  close(): Promise<void>
}

/** Prepares the database, then starts the exchange, the processes and the traffic. Where one of them fails, all are stopped. */
export async function supervise(
  url: string,
  options: DeskOptions,
  say: (line: string) => void,
  signal: AbortSignal,
): Promise<Running> {
  const closers: (() => Promise<void>)[] = []
  const close = async (): Promise<void> => {
    for (let closer = closers.pop(); closer !== undefined; closer = closers.pop()) await closer()
  }
  try {
    const { host, token, consoleToken } = options
    const port = await choosePort(host, options.port, say)
    signal.throwIfAborted()
    await prepare(url, SYSTEMS)
    signal.throwIfAborted()
    const exchange = await startExchange({ url })
    closers.push(() => exchange.close())
    const plan: ServicePlan = {
      url,
      exchangeUrl: exchange.url,
      processName: 'desk',
      host,
      port,
      poolSize: options.poolSize,
      waitMs: options.waitMs,
      operator: options.operator,
      sink: options.sink,
      log: options.log,
      headless: options.headless,
      requestsOnly: !options.background,
      ...(token !== undefined && { token }),
      ...(consoleToken !== undefined && { consoleToken }),
    }
    const race = await Show.prepare(say)
    const processes =
      options.processes === 1
        ? await startService({ ...plan, processName: `desk:${process.pid}` }, say, SYSTEMS, undefined, race)
        : await startMany(plan, race, options.processes, closers, say, signal)
    closers.push(() => processes.close())
    signal.throwIfAborted()
    const origin = originOf(host, port)
    if (options.traffic) {
      const traffic = startTraffic(origin, token)
      closers.push(() => traffic.close())
    }
    return { origin, close }
  } catch (error) {
    await close()
    throw error
  }
}

async function startMany(
  plan: ServicePlan,
  race: Show,
  count: number,
  closers: (() => Promise<void>)[],
  say: (line: string) => void,
  signal: AbortSignal,
): Promise<Workers> {
  const site = await startSeparateConsole(plan, race)
  closers.push(() => site.close())
  return Workers.start({ ...plan, consolePort: site.port }, count, new AllMetrics(site.metrics), say, signal)
}
