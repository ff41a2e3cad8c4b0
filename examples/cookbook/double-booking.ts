/**
 * Double booking: two guests book the same room for overlapping nights.
 *
 * Each caller looks for a booking that overlaps and inserts its own if there is none. Without a lock both look before either inserts.
 */
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { meeting } from './meeting.ts'

export async function run(pool: pg.Pool, locked: boolean): Promise<{ readonly bookings: number }> {
  const lockstep = new Lockstep(pool)
  await pool.query(`
    DROP TABLE IF EXISTS bookings;
    CREATE TABLE bookings (room text NOT NULL, guest text NOT NULL, first_night date NOT NULL, last_night date NOT NULL)`)
  const meet = meeting(2, locked)

  async function book(room: string, guest: string, first: string, last: string): Promise<boolean> {
    return lockstep.transaction(locked ? { lock: key`Room:${room}` } : {}, async (tx) => {
      const { rows } = await tx.query(
        'SELECT 1 FROM bookings WHERE room = $1 AND first_night <= $3 AND last_night >= $2',
        [room, first, last],
      )
      await meet()
      if (rows.length > 0) return false
      await tx.query('INSERT INTO bookings VALUES ($1, $2, $3, $4)', [room, guest, first, last])
      return true
    })
  }

  const booked = await Promise.all([
    book('101', 'ann', '2030-05-01', '2030-05-03'),
    book('101', 'ben', '2030-05-02', '2030-05-04'),
  ])
  await lockstep.close()
  return { bookings: booked.filter(Boolean).length }
}
