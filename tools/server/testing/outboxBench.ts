import type pg from 'pg'
import { beforeEach } from 'vitest'
import type { Lockstep } from '../../../src/index.ts'
import { type Dispatching, type DispatchingOptions, dispatching } from './dispatching.ts'
import { testBench, type Workbench } from './workbench.ts'

/** A workbench whose outbox is empty before each test. */
export interface OutboxBench extends Workbench {
  /** Runs a dispatcher with one shard and without retention, unless the options say otherwise. Stopped after the test. */
  dispatch(lockstep: Lockstep, options?: DispatchingOptions): Dispatching
  /** Appends one event to the stream `t/key` and returns its number. */
  enqueue(key: string, payload?: unknown, client?: pg.Client | pg.Pool): Promise<number>
}

/** TRUNCATE of what is empty anyway would take most of the time: twelve tables, some with partitions, before each test. */
const EMPTY = `
  UPDATE lockstep.outbox_home SET system = (SELECT system_identifier::text FROM pg_control_system());
  DO $$ BEGIN
    EXECUTE (SELECT 'TRUNCATE ' || string_agg(oid::regclass::text, ', ') FROM pg_class
              WHERE relnamespace = 'lockstep'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0
                AND relname ~ '^(leases|outbox_(events.*|quiet|ticks|dispatchers|cursors|parked|parked_events|dead|audit|segments))$');
  END $$;
  SELECT setval('lockstep.outbox_slot', 0);
  INSERT INTO lockstep.outbox_segments VALUES (0, 1, clock_timestamp())`

export async function outboxBench(options?: Parameters<typeof testBench>[0]): Promise<OutboxBench> {
  const bench = await testBench(options)
  beforeEach(() => bench.admin.query(EMPTY))
  return {
    ...bench,
    dispatch(lockstep, given) {
      const running = dispatching(lockstep, { shards: 1, retainMs: false, ...given })
      bench.cleanUp(() => running.stop())
      return running
    },
    async enqueue(key, payload = {}, client = bench.admin) {
      const { rows } = await client.query<{ seq: number }>(`SELECT lockstep.enqueue('t', $1, $2)::int AS seq`, [
        key,
        JSON.stringify(payload),
      ])
      return rows[0]?.seq ?? 0
    },
  }
}
