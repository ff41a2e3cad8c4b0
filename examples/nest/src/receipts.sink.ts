import { Inject, Injectable } from '@nestjs/common'
import { Lockstep, type OutboxEvent } from 'pg-lockstep'

/** Stands for a broker: writes down what it receives, in the order in which it comes. */
@Injectable()
export class ReceiptsSink {
  constructor(@Inject(Lockstep) private readonly lockstep: Lockstep) {}

  readonly send = async (events: readonly OutboxEvent[]): Promise<void> => {
    await this.lockstep.transaction({}, async (tx) => {
      for (const { key, seq } of events) {
        await tx.query('INSERT INTO receipts (account, seq) VALUES ($1, $2)', [key, String(seq)])
      }
    })
  }
}
