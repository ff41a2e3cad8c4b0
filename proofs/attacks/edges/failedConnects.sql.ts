/** The statements of the attack on failed connects. */

export const CREATE_TILLS = `
  CREATE TABLE IF NOT EXISTS tills (name text PRIMARY KEY, count int NOT NULL);
  INSERT INTO tills VALUES ('lockstep', 0), ('plain', 0) ON CONFLICT (name) DO UPDATE SET count = 0`

export const COUNT_ONE = `UPDATE tills SET count = count + 1 WHERE name = 'lockstep'`

export const COUNT_ONE_PLAINLY = `UPDATE tills SET count = count + 1 WHERE name = 'plain'`

export const READ_TILL = `SELECT count FROM tills WHERE name = 'lockstep'`

export const CREATE_TELLER = `
  DO $$ BEGIN CREATE ROLE teller LOGIN SUPERUSER PASSWORD 'right'; EXCEPTION WHEN duplicate_object THEN NULL; END $$`

export const RELOAD = 'SELECT pg_reload_conf()'
