/** What the example of a first file asks: it needs no table. */
export const STATEMENT = 'SELECT now()::text AS now'
