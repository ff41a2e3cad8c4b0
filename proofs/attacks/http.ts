import { goal, type ResultRow } from '../../tools/judge/report.ts'
import { type Answered, type RunningServer, askAt, simultaneous, startServers } from './http/servers.ts'
import type { Client } from './lab.ts'
import { attackInLab, type ReportProgress } from './attack.ts'

interface Size {
  readonly tries: number
}

/**
 * Two POSTs to one instance at once, on Express, Fastify and Hono, each to a server of its own with a pool of its own; the one that
 * works does not end before the other is answered. One 200 and one 409 with the problem document, every time. With the two
 * servers on different schemas, which do not know of each other's leases, both must be seen at work.
 */
export const http = attackInLab<Size>({
  name: 'http',
  about: 'two mutating requests on one instance at once: one 200, one 409, on Express, Fastify and Hono',
  full: { tries: 1000 },
  small: { tries: 15 },
  async run(lab, size, reportProgress) {
    const clients: Client[] = []
    const running: RunningServer[] = []
    const start = async (client: Client): Promise<RunningServer[]> => {
      clients.push(client)
      const servers = await startServers(client.lockstep)
      running.push(...servers)
      return servers
    }
    try {
      const here = await start(lab.client('pg', lab.url('direct'), { poolSize: 5 }))
      const there = await start(lab.client('postgres', lab.url('direct'), { poolSize: 5 }))
      const stranger = lab.client('pg', lab.url('direct'), { schema: 'stranger', poolSize: 5 })
      await stranger.lockstep.migrate()
      const strange = await start(stranger)
      const results: ResultRow[] = []
      for (const [index, server] of here.entries()) {
        results.push({
          framework: server.name,
          tries: size.tries,
          ...(await play(server, there[index], size.tries, reportProgress)),
        })
      }
      const control = await play(here[0] as RunningServer, strange[0], 3, reportProgress)
      const total = (column: 'one of each' | 'two at work'): number =>
        results.reduce((sum, row) => sum + Number(row[column]), 0)
      return {
        results,
        goals: [
          goal(
            'tries with one 200 and one 409 with the problem document',
            total('one of each'),
            '=',
            size.tries * here.length,
          ),
          goal('tries with two at work', total('two at work'), '=', 0),
          goal('control, leases of two schemas: tries with two at work', control['two at work'], '>=', 1),
        ],
      }
    } finally {
      await Promise.all(running.map((server) => server.close()))
    }
  },
})

async function play(
  server: RunningServer,
  other: RunningServer | undefined,
  tries: number,
  reportProgress: ReportProgress,
): Promise<{ 'one of each': number; 'two at work': number }> {
  const counts = { 'one of each': 0, 'two at work': 0 }
  for (let number = 0; number < tries; number++) {
    if (number % 50 === 0) reportProgress(`http: ${server.name}, ${number} of ${tries}`)
    const answers = await simultaneous(askAt(server.url), askAt((other ?? server).url))
    const worked = answers.filter(({ status }) => status === 200)
    const refused = answers.filter(isRefusal)
    if (worked.length === 1 && refused.length === 1) counts['one of each']++
    if (worked.length === 2) counts['two at work']++
  }
  return counts
}

function isRefusal({ status, contentType, retryAfter, body }: Answered): boolean {
  if (status !== 409 || contentType?.startsWith('application/problem+json') !== true || !(Number(retryAfter) >= 1))
    return false
  const problem = JSON.parse(body) as { type?: unknown; status?: unknown }
  return typeof problem.type === 'string' && problem.type.startsWith('urn:pg-lockstep:') && problem.status === 409
}
