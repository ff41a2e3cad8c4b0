/**
 * Seat reservation: two parties choose adjacent seats, and one seat is in both choices.
 *
 * A party gets all its seats or none, and a reservation expires when it is not paid in time. "Free" is therefore a decision over several rows
 * and the clock, which a unique constraint cannot make.
 */
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { meeting } from './meeting.ts'

export async function run(pool: pg.Pool, locked: boolean): Promise<{ readonly seatsSoldTwice: number }> {
  const lockstep = new Lockstep(pool)
  await pool.query(`
    DROP TABLE IF EXISTS reservations;
    CREATE TABLE reservations (show text NOT NULL, seat integer NOT NULL, party text NOT NULL, expires_at timestamptz NOT NULL);
    INSERT INTO reservations VALUES ('hamlet', 2, 'an old party', now() - interval '1 minute')`)
  const meet = meeting(2, locked)

  async function reserve(show: string, seats: readonly number[], party: string): Promise<boolean> {
    const lock = seats.map((seat) => key`Seat:${show}:${seat}`)
    return lockstep.transaction(locked ? { lock } : {}, async (tx) => {
      const { rows } = await tx.query(
        'SELECT 1 FROM reservations WHERE show = $1 AND seat = ANY($2) AND expires_at > now()',
        [show, seats],
      )
      await meet()
      if (rows.length > 0) return false
      await tx.query(
        `INSERT INTO reservations SELECT $1, seat, $3, now() + interval '10 minutes' FROM unnest($2::integer[]) AS seat`,
        [show, seats, party],
      )
      return true
    })
  }

  await Promise.all([reserve('hamlet', [1, 2], 'ann'), reserve('hamlet', [3, 2], 'ben')])
  const { rows } = await pool.query(
    'SELECT seat FROM reservations WHERE expires_at > now() GROUP BY show, seat HAVING count(*) > 1',
  )
  await lockstep.close()
  return { seatsSoldTwice: rows.length }
}
