import { NextResponse } from 'next/server'
import { isKnown } from './user.js'

/** Refuses requests without a user. */
export function proxy(request) {
  return isKnown(request) ? NextResponse.next() : new NextResponse('Who are you?', { status: 401 })
}

export const config = { matcher: ['/transfers', '/instances/:path*'] }
