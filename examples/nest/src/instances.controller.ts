import { setTimeout as delay } from 'node:timers/promises'
import { Controller, HttpCode, Inject, Param, Post, UseGuards } from '@nestjs/common'
import type { Request } from 'express'
import { key, type Lease, Lockstep } from 'pg-lockstep'
import { Exclusive, HeldLease } from 'pg-lockstep/nest'
import { AuthGuard } from './auth.guard.js'

@Controller('instances')
@UseGuards(AuthGuard)
export class InstancesController {
  constructor(@Inject(Lockstep) private readonly lockstep: Lockstep) {}

  /** Reads, works elsewhere for a while, and writes: one request at a time, in all processes. */
  @Post(':id/next')
  @HttpCode(200)
  @Exclusive({ key: ({ params }: Request) => key`Instance:${String(params['id'])}`, lease: { ttlMs: 2_000 } })
  async next(@Param('id') id: string, @HeldLease() lease: Lease): Promise<object> {
    const last = await this.lockstep.transaction({}, async (tx) => {
      const { rows } = await tx.query<{ step: number | null }>(
        'SELECT max(step) AS step FROM steps WHERE instance = $1',
        [id],
      )
      return rows[0]?.step ?? 0
    })
    await delay(5)
    await lease.transaction({}, (tx) => tx.query('INSERT INTO steps (instance, step) VALUES ($1, $2)', [id, last + 1]))
    return { step: last + 1 }
  }
}
