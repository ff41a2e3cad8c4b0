export const ADD_JOB = 'SELECT graphile_worker.add_job($1, $2::json, queue_name := $3)'
