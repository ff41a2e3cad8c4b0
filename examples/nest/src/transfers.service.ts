import { Injectable } from '@nestjs/common'
import type { Transaction } from 'pg-lockstep'

export interface Transfer {
  readonly id: string
  readonly from: string
  readonly to: string
  readonly amount: number
}

/** A provider works in the transaction that it is given. */
@Injectable()
export class TransfersService {
  async move(tx: Transaction, { id, from, to, amount }: Transfer): Promise<object> {
    const { rows } = await tx.query<{ balance: number }>('SELECT balance FROM accounts WHERE id = $1', [from])
    const left = (rows[0]?.balance ?? 0) - amount
    if (left < 0) return { id, moved: false }
    await tx.query('UPDATE accounts SET balance = $2 WHERE id = $1', [from, left])
    await tx.query('UPDATE accounts SET balance = balance + $2 WHERE id = $1', [to, amount])
    await tx.query('INSERT INTO transfers (id, amount) VALUES ($1, $2)', [id, amount])
    await tx.enqueue({ topic: 'transfers', key: from, payload: { id } })
    return { id, moved: true }
  }
}
