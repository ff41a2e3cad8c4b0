/** The names changed with version 15. Not exclusive: the session stays open while the files are copied. */
export const beginBackup = (major: number): string =>
  major >= 15 ? `SELECT pg_backup_start('lockstep', true)` : `SELECT pg_start_backup('lockstep', true, false)`

export const endBackup = (major: number): string =>
  major >= 15 ? 'SELECT labelfile FROM pg_backup_stop(false)' : 'SELECT labelfile FROM pg_stop_backup(false, false)'

export const MAJOR = `SELECT current_setting('server_version_num')::int / 10000 AS major`
