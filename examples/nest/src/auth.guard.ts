import { type CanActivate, type ExecutionContext, Injectable } from '@nestjs/common'
import type { Request } from 'express'

/** Yours looks a session or an API key up. */
const USERS: ReadonlyMap<string, string> = new Map([
  ['key-of-alice', 'alice'],
  ['key-of-bob', 'bob'],
])

export type AuthenticatedRequest = Request & { readonly user: string }

@Injectable()
export class AuthGuard implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    const request = context.switchToHttp().getRequest<Request & { user?: string }>()
    const user = USERS.get(request.get('authorization')?.replace(/^Bearer /, '') ?? '')
    if (user === undefined) return false
    request.user = user
    return true
  }
}
