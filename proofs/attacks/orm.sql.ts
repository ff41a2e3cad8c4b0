/** What the attack on ORMs looks at. Every committed transaction has a row in notes, an increment of the counter and an event. */

export const NOTES = 'SELECT id FROM notes WHERE id LIKE $1'

/** The events of a stream, and the highest number among them: the same where there is no gap. */
export const EVENTS = `
  SELECT count(*)::int AS count, coalesce(max(seq), 0)::int AS last FROM lockstep.outbox_events WHERE topic = 'orms' AND key = $1`
