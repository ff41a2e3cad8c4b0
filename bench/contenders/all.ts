import {
  effectsAlone,
  lockingQuery,
  lockstepInSql,
  notifies,
  plainInsert,
  plainInsertAlone,
  readsById,
} from './byHand.ts'
import type { ContenderKind } from './contender.ts'
import { graphileLocalQueue, graphileNamed, graphileUnordered } from './graphileWorker.ts'
import { lockstep, lockstepLists } from './lockstep.ts'
import { pgBoss, pgBossLists } from './pgBoss.ts'
import { pgq } from './pgq.ts'
import { pgTransactionalOutbox } from './pgTransactionalOutbox.ts'

export type ContenderName =
  | 'Lockstep'
  | 'Lockstep, lists'
  | 'plain INSERT'
  | 'lockstep.enqueue(), alone'
  | 'plain INSERT, alone'
  | 'pg-boss key_strict_fifo'
  | 'pg-boss key_strict_fifo, lists'
  | 'graphile-worker, a queue a key'
  | 'graphile-worker, a queue a key, local queue'
  | 'graphile-worker, unordered'
  | 'pg-transactional-outbox'
  | 'a query that locks as it reads'
  | 'PgQ'
  | 'effects alone'
  | 'the limit: rows read by id'
  | 'the limit: a notification with the event'

/** All ways that are compared, by the names that stand in the tables. */
export const contenders: Readonly<Record<ContenderName, ContenderKind>> = {
  Lockstep: lockstep,
  'Lockstep, lists': lockstepLists,
  'plain INSERT': plainInsert,
  'lockstep.enqueue(), alone': lockstepInSql,
  'plain INSERT, alone': plainInsertAlone,
  'pg-boss key_strict_fifo': pgBoss,
  'pg-boss key_strict_fifo, lists': pgBossLists,
  'graphile-worker, a queue a key': graphileNamed,
  'graphile-worker, a queue a key, local queue': graphileLocalQueue,
  'graphile-worker, unordered': graphileUnordered,
  'pg-transactional-outbox': pgTransactionalOutbox,
  'a query that locks as it reads': lockingQuery,
  PgQ: pgq,
  'effects alone': effectsAlone,
  'the limit: rows read by id': readsById,
  'the limit: a notification with the event': notifies,
}
