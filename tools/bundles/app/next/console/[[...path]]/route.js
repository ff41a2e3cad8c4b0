import { site } from '../../../work.js'

export const GET = (request) => site.fetch(request)
export const POST = (request) => site.fetch(request)
