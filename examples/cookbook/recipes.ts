import type pg from 'pg'
import { run as cron } from './cron.ts'
import { run as doubleBooking } from './double-booking.ts'
import { run as inventory } from './inventory.ts'
import { run as rateLimit } from './rate-limit.ts'
import { run as saga } from './saga.ts'
import { run as seatReservation } from './seat-reservation.ts'
import { run as wallet } from './wallet.ts'
import { run as webhookReceiver } from './webhook-receiver.ts'

/** The programs of docs/guides/cookbook.md. Each runs on a migrated database, with its protection or, as the control, without it. */
export const recipes: Readonly<Record<string, (pool: pg.Pool, locked: boolean) => Promise<unknown>>> = {
  'double-booking': doubleBooking,
  inventory,
  'seat-reservation': seatReservation,
  wallet,
  'webhook-receiver': webhookReceiver,
  cron,
  'rate-limit': rateLimit,
  saga,
}
