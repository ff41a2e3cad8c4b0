import { work } from '../../work.js'

export const dynamic = 'force-dynamic'

export async function GET() {
  return Response.json(await work())
}
