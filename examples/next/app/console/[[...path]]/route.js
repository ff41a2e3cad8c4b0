import { createConsole } from 'pg-lockstep/console'
import { lockstep } from '../../../lockstep.js'

const site = createConsole(lockstep, { base: '/console' })

export const GET = (request) => site.fetch(request)
export const POST = (request) => site.fetch(request)
