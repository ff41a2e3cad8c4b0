import type { Mutant } from './mutant.ts'

/** Of the rollout of locks and leases. */
export const rollout: readonly Mutant[] = [
  {
    name: 'observed-lease-blocks',
    why: 'A lease of an observed key is asked for: the second caller is refused.',
    file: 'src/leases/leases.ts',
    find: "if (admission !== undefined && admission.mode !== 'on') {",
    replace: "if (admission !== undefined && admission.mode === 'off') {",
    caughtBy: {
      by: 'test',
      file: 'src/rollout/leaseRollout.pg.test.ts',
      test: 'blocks no caller with observe, and reports the wait or the refusal that would have been',
    },
  },
  {
    name: 'observed-creation-waits',
    why: 'Callers of onceExternal in one process wait for each other, although the rollout has the key left alone.',
    file: 'src/once/onceExternal.ts',
    find: "admission !== undefined && admission.mode !== 'on' ? EVERYBODYS : queue.begin(key)",
    replace: 'queue.begin(key)',
    caughtBy: {
      by: 'test',
      file: 'src/rollout/leaseRollout.pg.test.ts',
      test: 'lets callers of one process and of two create at once unless on',
    },
  },
  {
    name: 'observed-lease-without-fence',
    why: 'An observed lease has no fence: what has seen one of a held lease refuses every caller after a trigger was pulled.',
    file: 'src/leases/nonExclusiveLease.ts',
    find: 'this.fence = lease.mark?.fence ?? 0n',
    replace: 'this.fence = 0n',
    caughtBy: {
      by: 'test',
      file: 'src/rollout/leaseRollout.pg.test.ts',
      test: 'blocks no caller with observe, and reports the wait or the refusal that would have been',
    },
  },
  {
    name: 'two-leaders-in-rollout',
    why: 'A leader follows the rollout: with off, every candidate leads.',
    file: 'src/leases/leader.ts',
    find: 'lease = await leases.hold(key, plan)',
    replace: 'lease = (await leases.acquire(key, { ...options, waitMs: false })) as unknown as HeldLease',
    caughtBy: {
      by: 'test',
      file: 'src/rollout/leaseRollout.pg.test.ts',
      test: 'elects one leader whatever the rollout says',
    },
  },
  {
    name: 'dispatcher-follows-rollout',
    why: 'A dispatcher takes a shard as the rollout has it: with off, two processes own it.',
    file: 'src/outbox/ownedShards.ts',
    find: 'this.#leases.acquireAlways(this.keyOf(number)',
    replace: 'this.#leases.acquire(this.keyOf(number)',
    caughtBy: {
      by: 'test',
      file: 'src/rollout/leaseRollout.pg.test.ts',
      test: 'holds the shards of a dispatcher whatever the rollout says',
    },
  },
  {
    name: 'trigger-pulled-in-every-process',
    why: 'Every process whose trigger is pulled switches the rule back, also where another one has done it.',
    file: 'sql/functions/rollout_switch_back.sql',
    find: ' AND extract(epoch FROM r.changed_at)::text = seen',
    replace: '',
    caughtBy: { by: 'attack', attack: 'rollout', goal: 'locks: waitMs switches back once' },
  },
  {
    name: 'trigger-reported-by-all',
    why: 'A process reports that it has switched a prefix back, although another one has done it.',
    file: 'src/rollout/rolloutTrigger.ts',
    find: 'if (!didIt) return',
    replace: '',
    caughtBy: {
      by: 'test',
      file: 'src/rollout/rolloutTrigger.unit.test.ts',
      test: 'is not reported where another process has switched it',
    },
  },
  {
    name: 'slower-by-chance',
    why: 'Calls count as slower as soon as their mean is: a few long ones switch healthy locks off.',
    file: 'src/rollout/durations.ts',
    find: 'const CERTAIN = 4',
    replace: 'const CERTAIN = 0',
    caughtBy: {
      by: 'test',
      file: 'src/rollout/rolloutTrigger.unit.test.ts',
      test: 'does not take a few long calls for a slowdown',
    },
  },
]
