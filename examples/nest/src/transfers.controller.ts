import { Body, Controller, Post, UseGuards } from '@nestjs/common'
import { key, type Transaction } from 'pg-lockstep'
import { Idempotent, Tx } from 'pg-lockstep/nest'
import { AuthGuard, type AuthenticatedRequest } from './auth.guard.js'
import { type Transfer, TransfersService } from './transfers.service.js'

@Controller('transfers')
@UseGuards(AuthGuard)
export class TransfersController {
  constructor(private readonly transfers: TransfersService) {}

  /** A retry with the same Idempotency-Key gets the first answer, and the money has moved once. */
  @Post()
  @Idempotent({
    // The guard has verified the user.
    scope: (request: AuthenticatedRequest) => request.user,
    lock: ({ body }: AuthenticatedRequest) => [key`Account:${String(body.from)}`, key`Account:${String(body.to)}`],
  })
  create(@Body() transfer: Transfer, @Tx() tx: Transaction): Promise<object> {
    return this.transfers.move(tx, transfer)
  }
}
