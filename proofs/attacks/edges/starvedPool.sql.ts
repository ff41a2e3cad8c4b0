/** What a plain caller asks for, again and again. */
export const NAP = 'SELECT pg_sleep(0.002)'
export const PROBE = 'SELECT 1'
export const BEGIN = 'BEGIN'
export const ROLLBACK = 'ROLLBACK'
