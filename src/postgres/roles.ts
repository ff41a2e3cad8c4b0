import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import { nearest } from '../nearest.ts'
import { exactGrants } from './grants.sql.ts'
import { checkIdentifier, checkSchemaName, quoteIdentifier } from './identifiers.ts'

/**
 * Who can do what. All tables and sequences of the schema are its owner's alone; a role gets the right to call functions, and those run
 * with the owner's rights and a search_path of their own. This list is the one place where the grants are written down: the command
 * `grants`, the doctor, the page docs/operating/roles.md and the attack `intruder` all read it.
 */

/** A role of the documentation. */
export type RoleName = 'producer' | 'application' | 'dispatcher' | 'consumer' | 'operator' | 'observer'

export interface RoleDescription {
  /** One sentence for the documentation. */
  readonly does: string
  /** The functions that it calls. With its arguments where the name has several. */
  readonly functions: readonly string[]
}

/** What the library asks before it does anything. */
const EVERY_ROLE = [
  'schema_version',
  'ensure_incarnation',
  'current_incarnation',
  'lock_id',
  'lock_trials_known',
  'failover_settings',
  // With `strategy: 'table'` the trial of the locks is made with rows.
  'lock_row_try',
  'lock_row_wait',
  'lock_rows_existing',
]

const HOLD_LEASES = [
  'lease_take',
  'lease_renew',
  'lease_release',
  'lease_wait',
  'lease_look',
  'lease_leave',
  'lease_clean_up',
]

const SEE_LEASES = ['lease_holders', 'lease_queue', 'lease_endings']

const RETAIN = ['outbox_prepare_segment', 'outbox_rotate', 'outbox_seal', 'outbox_drop', 'outbox_keep']

const OBSERVE = [
  ...SEE_LEASES,
  'epoch_list',
  'lease_counts',
  'lock_names_of',
  'rollout_rules',
  'guard_list',
  'guard_sample_list',
  'foreign_lock_holders',
  'outbox_status',
  'outbox_held',
  'outbox_resting',
  'outbox_dispatcher_names',
  'outbox_dispatcher_list',
  'outbox_segment_list',
  'outbox_parked_list',
  'outbox_parked_find',
  'outbox_dead_find',
  'outbox_events_of',
  'outbox_events_between',
  'outbox_positions',
  'outbox_position',
  'inbox_consumer_list',
  'inbox_position_list',
  'outbox_audit_list',
  'lease_forced_list',
  'lease_find',
  'inbox_list',
  'idempotency_list',
]

export const ROLES: Readonly<Record<RoleName, RoleDescription>> = {
  producer: {
    does: 'Enqueues events. It reads none, changes none, and moves no cursor.',
    functions: [
      ...EVERY_ROLE,
      'enqueue',
      'enqueue_bytes',
      'enqueue_at',
      'enqueue_bytes_at',
      'outbox_append',
      'outbox_append_at',
      'outbox_append_many_at',
      // The previous release calls it.
      'outbox_append_many',
      'outbox_lock',
      'outbox_last',
      'outbox_stream',
      'outbox_ring',
    ],
  },
  application: {
    does: 'Locks, holds leases, and answers requests once (`idempotent`). It neither enqueues nor accepts events: add `producer` or `consumer`.',
    functions: [
      ...EVERY_ROLE,
      'lock_trials_remember',
      'lock_trials_forget',
      'lock_names_record',
      'lock_names_trim',
      'lock_names_of',
      'rollout_rules',
      'rollout_set',
      'rollout_switch_back',
      ...HOLD_LEASES,
      'lease_guard',
      ...SEE_LEASES,
      'idempotency_look',
      'idempotency_keep',
      'idempotency_clean_up',
    ],
  },
  dispatcher: {
    does: 'Delivers, parks, gives up and retains events, for every dispatcher. It cannot enqueue or erase.',
    functions: [
      ...EVERY_ROLE,
      ...HOLD_LEASES,
      // Its shards and its members are leases.
      'lease_holders',
      'lease_queue',
      'outbox_register',
      'outbox_register_dispatcher',
      // To which generation an event belongs.
      'epoch_generations',
      'outbox_take',
      'outbox_take_shard',
      'outbox_subscribe',
      'outbox_read',
      'outbox_listen',
      'outbox_ring',
      'outbox_look_ahead',
      // The previous release calls it.
      'outbox_todo',
      'outbox_gone',
      'outbox_shares',
      'lease_revive',
      'outbox_move',
      'outbox_advance',
      'outbox_flush',
      'outbox_flush_read',
      'outbox_replicated',
      'outbox_parked_due',
      'outbox_parked_tried',
      'outbox_unpark',
      ...RETAIN,
      // Its lag is a metric.
      'outbox_status',
      'outbox_held',
      'outbox_resting',
      'outbox_dispatcher_list',
      'outbox_segment_list',
    ],
  },
  consumer: {
    does: 'Accepts events through the inbox, and moves its position.',
    functions: [
      ...EVERY_ROLE,
      'inbox_accept_event',
      'inbox_accept_batch',
      // The previous release calls these.
      'inbox_accept',
      'inbox_accept_runs',
      'inbox_start',
      'inbox_position',
    ],
  },
  operator: {
    does: 'Sees what an observer sees, and changes it: retries, redrives, skips, pauses, erases and replays, which reads every payload; takes leases away; sets rollout rules and modes of guards.',
    functions: [
      ...EVERY_ROLE,
      ...OBSERVE,
      'lease_force_release',
      'rollout_set',
      'rollout_unset',
      'guard_set',
      'outbox_operate',
      'outbox_head',
      // It reads headers.
      'outbox_events_find',
      'outbox_redrive_parked',
      'outbox_redrive_dead',
      'outbox_erase',
      'outbox_remove',
      'outbox_rebase',
      'outbox_split_begin',
      'outbox_split',
      'outbox_forget_xids',
      'epoch_generations',
      'outbox_replay_stream',
      'outbox_replay_after',
      'outbox_audit_replay',
      'outbox_emptied',
      'outbox_stored_bytes',
      'outbox_max_event_bytes',
      ...RETAIN,
    ],
  },
  observer: {
    does: 'Sees locks, leases, guards, how far the outbox and the inbox are, which events there are, which answers are kept, and what operators did. It sees no payload, no header, no answer and no token of a lease, and changes nothing.',
    functions: [...EVERY_ROLE, ...OBSERVE],
  },
}

export const ROLE_NAMES = Object.keys(ROLES) as readonly RoleName[]

/** Checks the name of a role of the documentation. */
export function checkRoleName(name: unknown): RoleName {
  if (typeof name === 'string' && Object.hasOwn(ROLES, name)) return name as RoleName
  const near = typeof name === 'string' ? nearest(name, ROLE_NAMES) : undefined
  throw new InvalidOptionError(`There is no role ${JSON.stringify(name)}.`, {
    advice: `Use ${ROLE_NAMES.join(', ')}.${near === undefined ? '' : ` Did you mean ${near}?`}`,
  })
}

/** The functions of several roles together, each once. */
export function functionsOf(roles: readonly RoleName[]): string[] {
  return [...new Set(roles.flatMap((role) => ROLES[role].functions))]
}

/** Options of `grantsFor()` and `lockstep.grant()`. */
export interface GrantOptions {
  /** The role of the database. */
  readonly to: string
  /** The roles of the documentation to grant, one or several. */
  readonly as: RoleName | readonly RoleName[]
}

const GRANT_OPTIONS: OptionNames<GrantOptions> = { to: true, as: true }

/**
 * The statements, from BEGIN to COMMIT, after which a role of the database can do what the documentation says, and nothing else in the
 * schema: what it was granted before is revoked first. Run them as the owner of the schema.
 *
 * @example
 * const statements = grantsFor('lockstep', { to: 'shop', as: ['application', 'producer'] })
 */
export function grantsFor(schema: string, options: GrantOptions): string[] {
  checkOptions('grant()', options, GRANT_OPTIONS)
  const role = quoteIdentifier(checkIdentifier('role', options.to))
  // PostgreSQL means all roles by it, in quotes, too.
  if (options.to === 'public') {
    throw new InvalidOptionError('"public" is every role of the server.', { advice: 'Name one role of the database.' })
  }
  const names = (Array.isArray(options.as) ? options.as : [options.as]).map((name) => checkRoleName(name))
  if (names.length === 0) checkRoleName('')
  return exactGrants(quoteIdentifier(checkSchemaName(schema)), functionsOf(names), role)
}
