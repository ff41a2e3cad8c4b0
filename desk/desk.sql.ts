/** What belongs to no single system. */

export const CREATE_SCHEMA = 'CREATE SCHEMA IF NOT EXISTS lockstep_desk'

export const ANYTHING = 'SELECT 1'
