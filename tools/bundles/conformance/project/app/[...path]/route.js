// Serves the routes that the suite of the HTTP handlers has added. The guards and their work come from the suite, which runs in the same
// process; the library here is the one that Next.js has bundled.
import { fetchHandler } from 'pg-lockstep/http'

export async function POST(request, context) {
  const { path } = await context.params
  const { guard, work } = globalThis.lockstepSites.get(request.headers.get('x-site')).get(`/${path[0]}`)
  const handle = fetchHandler(guard, async (own, given, { params }) => {
    const [, id] = (await params).path
    const headers = new Headers()
    let status = 200
    const answer = await work({ tenant: own.headers.get('x-tenant') ?? '', id }, given, {
      status: (code) => (status = code),
      append: (name, value) => headers.append(name, value),
      remove: (name) => headers.delete(name),
    })
    for (const [name, value] of Object.entries(answer.headers ?? {})) headers.append(name, value)
    return Response.json(answer.json, { status: answer.status ?? status, headers })
  })
  return handle(request, context)
}
