export const BEGIN_SNAPSHOT = 'BEGIN ISOLATION LEVEL REPEATABLE READ'
export const READ_ALL = 'SELECT count(*) FROM lockstep.outbox_events'
export const CREATE_ELSEWHERE = 'CREATE DATABASE elsewhere'
