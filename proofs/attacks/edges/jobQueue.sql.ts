/** What requests write: a row each, and the owners of transactions some more. */
export const CREATE = 'DROP TABLE IF EXISTS queued_jobs; CREATE TABLE queued_jobs (id text PRIMARY KEY)'
export const INSERT = 'INSERT INTO queued_jobs VALUES ($1)'
export const ALL = 'SELECT id FROM queued_jobs'

/** How a transaction is nested by hand. */
export const BEGIN = 'BEGIN'
export const COMMIT = 'COMMIT'
export const ROLLBACK = 'ROLLBACK'
export const savepoint = (number: number): string => `SAVEPOINT part_${number}`
export const release = (number: number): string => `RELEASE SAVEPOINT part_${number}`
export const rollBackTo = (number: number): string => `ROLLBACK TO SAVEPOINT part_${number}`
