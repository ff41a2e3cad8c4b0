-- What sql/tables and sql/functions result in. Made by `npm run schema`; a test fails on drift.

function current_incarnation() returns text language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 2b07ebf9ee392a4c751361a7f683c953
function enqueue(topic text, key text, payload json, headers json DEFAULT NULL::json) returns bigint language sql volatile security definer set search_path=pg_catalog, pg_temp
  body 6eb8f8b428e9a835dd9df57121c32d2d
function enqueue_at(topic text, key text, payload json, not_before timestamp with time zone, headers json DEFAULT NULL::json) returns bigint language sql volatile security definer set search_path=pg_catalog, pg_temp
  body 16dc392ea7b28ba701be58ef9db16761
function enqueue_bytes(topic text, key text, payload bytea, headers json DEFAULT NULL::json) returns bigint language sql volatile security definer set search_path=pg_catalog, pg_temp
  body e8f9bcb78c51daefa1dfd46dec437f66
function enqueue_bytes_at(topic text, key text, payload bytea, not_before timestamp with time zone, headers json DEFAULT NULL::json) returns bigint language sql volatile security definer set search_path=pg_catalog, pg_temp
  body 0fa6096a37ba737a0cb33645e332fbda
function ensure_incarnation() returns lockstep.incarnation language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 2e41f2131ce285085143d4642efbfaa6
function epoch_generations() returns TABLE(generation text, after_id text) language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body ba15be2628d30e8fce46860cc5abcf1b
function epoch_list(most integer) returns TABLE(history text, generation text, kind text, timeline text, address text, began_ms text, last_known_ms text, after_id text, grants_ms text) language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 18256b1d60bf69d5320852944d311f8f
function epoch_mark_now() returns void language plpgsql volatile set jit=off
  body b3f738e59c9ce850744acc0fff821fb7
function failover_settings(OUT max_ttl_ms integer, OUT synchronous_failover boolean) returns record language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 8d583fdb6b26f61065c60dcbb394bbc6
function foreign_lock_holders(most integer) returns TABLE(pid integer, role text, application text, id bigint, held boolean, what text) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 39695c73aa7362ed125771bdac31f2d7
function guard_add(my_relation regclass, my_key text, my_literals text[], my_columns text[], my_held text, my_mode text, my_percent integer, my_reason text) returns integer language plpgsql volatile set search_path=pg_catalog, pg_temp, jit=off
  body 19242b99713df4cface9582de7194dea
function guard_list() returns TABLE(id integer, relation text, key text, held text, mode text, percent integer, reason text, added_at timestamp with time zone, changed_at timestamp with time zone, unlocked bigint, listed bigint, refused bigint, state text) language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body d8b566c6d00149049ec80a0861e43d16
function guard_listed(my_id bigint, certain boolean) returns boolean language plpgsql volatile set search_path=pg_catalog, pg_temp, jit=off
  body 085ac50a3c66c4c51fce78e971b7dfc3
function guard_missed(my_guard integer, operation text, missed text) returns void language plpgsql volatile set search_path=pg_catalog, pg_temp, jit=off
  body f8c767d95da15fdeb8863862a95cf72e
function guard_part(my_id bigint) returns integer language sql immutable strict parallel safe
  body a7a8dd635790842060c4c4c4a3a5c9a9
function guard_remove(my_guard integer) returns SETOF integer language plpgsql volatile set search_path=pg_catalog, pg_temp, jit=off
  body 11a5eaf3566e80e162d01558443f5e34
function guard_sample(my_guard integer, my_operation text, my_key text, my_number bigint) returns void language plpgsql volatile set search_path=pg_catalog, pg_temp, jit=off
  body 85e7ac2d1f2af8caa5ac5e640fa14e53
function guard_sample_list(my_guard integer, most integer) returns SETOF lockstep.guard_samples language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 9405eb9c6988be0117d4ed165b245133
function guard_set(my_guard integer, my_mode text, my_percent integer, my_reason text) returns SETOF integer language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 7448ea161f851b0925376c71854e49d8
function guard_trigger(my_guard integer, my_relation regclass, my_name text, my_events text, my_level text) returns void language plpgsql volatile set search_path=pg_catalog, pg_temp, jit=off
  body 8a50ff593d4a02ba05fc5db697149933
function idempotency_clean_up(most integer) returns void language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 043b790a256ecac4781312dec8b68bce
function idempotency_keep(my_scope text, my_key text, my_fingerprint bytea, my_status integer, my_headers json, my_body bytea, ttl_ms double precision) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 997ca509c46a8e64b707aa69d463113e
function idempotency_list(my_scope text, my_prefix text, after_scope text, after_key text, most integer) returns TABLE(scope text, key text, status integer, body_bytes bigint, created_at timestamp with time zone, expires_at timestamp with time zone) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_custom_plan
  body 56fe1c6ecc901b0edaaa870b360c1918
function idempotency_look(my_scope text, my_key text, lease_name text, OUT fingerprint bytea, OUT status integer, OUT headers json, OUT body bytea, OUT left_ms bigint) returns record language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body cd4a92aa46c0d314ee4d7f4dd2ab1d98
function inbox_accept(my_consumer text, my_topic text, my_key text, my_seq bigint, my_uuid uuid, tombstone boolean DEFAULT false, start bigint DEFAULT 1) returns text language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 97a637d53152c224aec17842fc84cac7
function inbox_accept_batch(my_consumer text, topics text[], keys text[], firsts bigint[], counts integer[], uuids uuid[], generations bigint[], starts bigint[], idle_ms integer) returns TABLE(place integer, verdict text, seq bigint, at bigint) language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
  body 6184a9c36325447b7d6aa29dc7191a53
function inbox_accept_event(my_consumer text, my_topic text, my_key text, my_seq bigint, my_uuid uuid, tombstone boolean, start bigint, my_generation bigint) returns text language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
  body 407c5da164f26eb5361ebfb06eb6997a
function inbox_accept_runs(my_consumer text, topics text[], keys text[], firsts bigint[], counts integer[], uuids uuid[], starts bigint[], idle_ms integer DEFAULT 0) returns TABLE(place integer, verdict text, seq bigint) language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 3129a85a1415007df746fc811553e499
function inbox_consumer_list(most bigint) returns TABLE(consumer text, streams bigint) language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 03101f7d6e75507bb61f924dd8c180f2
function inbox_list(my_consumer text, my_topic text, my_key text, after_consumer text, after_topic text, after_key text, most integer) returns SETOF lockstep.inbox language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_custom_plan
  body 4f7eb61e4b3a96caa446569481be6f2c
function inbox_position(my_consumer text, my_topic text, my_key text) returns TABLE(seq bigint, uuid uuid) language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body f92ed69c2d9d54c8a61aa51b7fe3f7e0
function inbox_position_list(my_consumer text, my_topic text, after_topic text, after_key text, most integer) returns TABLE(topic text, key text, seq bigint, uuid uuid) language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 32a28ee6715da1f997e3e5b9d792a0f0
function inbox_start(my_consumer text, my_topic text, my_key text, start bigint, force boolean DEFAULT false) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body d292fb1ed5da0a277e3f26006ff30731
function lease_carry_over() returns void language plpgsql volatile set jit=off
  body bfeeb81c4c877c2fae8fc5305a2c6bc4
function lease_clean_up(keep_history bigint, idle_ms bigint) returns void language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 7309bbbf5614cc826e666289251b5c86
function lease_counts(OUT held bigint, OUT waiting bigint, OUT names bigint) returns record language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 2b72635d3b81a443c922c918dda8c30b
function lease_endings(wanted text, most integer) returns SETOF lockstep.lease_history language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body a011818475ed44584c3e99c9cbf2367d
function lease_find(words text[], most integer) returns TABLE(name text, slot integer, permits integer, fence bigint, holder text, metadata jsonb, acquired_at timestamp with time zone, expires_at timestamp with time zone, waiters bigint) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_custom_plan
  body 022a7270d890e403a24f8349a0b05f27
function lease_force_release(held text, forced_by text, forced_reason text) returns integer language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body ba930b624355f94bba204dc2d3045508
function lease_forced_list(before_id bigint, my_key text, my_name text, most integer) returns SETOF lockstep.lease_history language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_custom_plan
  body ca8a2d1d28a3cedf055eb839105b2e25
function lease_grants_from(wanted text, wanted_ttl_ms integer) returns timestamp with time zone language plpgsql volatile set jit=off
  body ef6bb8514d3d9050cd62f64c8d0cd97f
function lease_guard(held text, my_token uuid, my_fence bigint, bound_ms double precision) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 210e703741816f01885a8102890f762d
function lease_holders(wanted text, exactly boolean, most integer) returns TABLE(name text, slot integer, permits integer, fence bigint, holder text, metadata jsonb, acquired_at timestamp with time zone, expires_at timestamp with time zone) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 75af253a1f329f4a6da132b5f2e33746
function lease_leave(tokens uuid[]) returns void language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 30f329383f8c5644e80099482ae6509b
function lease_look(tokens uuid[], permits integer[], keep_ms integer) returns TABLE(waiting_token uuid, ready boolean, left_ms double precision) language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 63326979cad8d95eab0fd0547678d377
function lease_queue(wanted text, exactly boolean, most integer) returns TABLE(name text, holder text, since timestamp with time zone) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 274e1d93ef0182dac9a3ebee0fd87cbb
function lease_release(held text, my_token uuid) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 2019f7e41d7cf4097cf9cbbc0737312b
function lease_renew(names text[], tokens uuid[], fences bigint[], ttls_ms integer[]) returns TABLE(renewed_token uuid, outcome text) language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 6918408aaeb6fe8dfa2b47174d0fb466
function lease_revive(names text[], tokens uuid[], fences bigint[], ttls_ms integer[]) returns TABLE(revived_token uuid) language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 5a41196f389a644bda7b7db6c54c04f5
function lease_take(wanted text, my_token uuid, ttl_ms integer, wanted_permits integer, my_holder text, my_metadata jsonb, my_place bigint, my_remembered boolean, OUT verdict text, OUT granted_slot integer, OUT granted_fence bigint, OUT other_holder text, OUT other_since timestamp with time zone, OUT other_left_ms double precision, OUT other_permits integer) returns record language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body b53c78f593bcbf9718bad1e8e6093c0e
function lease_wait(names text[], tokens uuid[], holders text[], keep_ms integer) returns TABLE(waiting_token uuid, waiting_place bigint) language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 2729e5677abad72abd9f4928f8b0387e
function lease_wake(freed text) returns void language sql volatile set jit=off
  body 0f7e13006ba58f73de36afbb961a832b
function lock_id(domain text, key text) returns bigint language sql immutable strict parallel safe
  body 15c7b567c232ea48d2ec04b8008e86ac
function lock_names_of(ids bigint[]) returns TABLE(id bigint, key text) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 65442362fd23ed55413f161a9212f0be
function lock_names_record(names json) returns void language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 26c4e46625d80752073e03fe077c7b70
function lock_names_trim(keep integer, most integer) returns void language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body f853b15650b56ad81d5a897d67964100
function lock_row_try(my_id bigint, shared boolean) returns bigint language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body cf27ac64254ab6e34c701b32e946e0f4
function lock_row_wait(my_id bigint, shared boolean) returns void language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body e4d5b1091e8f42892b016c424ba76cbc
function lock_rows_existing(ids bigint[]) returns bigint language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 098ba024a1d95fdec01687952ea3cf8d
function lock_trials_forget(my_route text) returns void language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 0434a7c40c27b988f1851d71bd0e5982
function lock_trials_known(my_system bigint, my_route text, my_strategy text, least_version integer) returns text language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 37e6d76720c5bf77abe2e0eaada23b6d
function lock_trials_remember(my_route text, my_strategy text, was_pooled boolean, my_connections integer, my_version integer) returns void language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 24b701563fdd27d3d0185fef82092b9a
function next_fence() returns bigint language sql volatile
  body d9afffc8d23cb4726150afd5b5b4d4b7
function outbox_advance(my_dispatcher text, my_shard smallint, my_fence bigint, my_version bigint, my_life text, new_prev pg_snapshot, new_next pg_snapshot, new_after bigint, new_done boolean, new_seen bigint, waiting jsonb DEFAULT NULL::jsonb) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
  body d1c4d9503ac7a39f2e710f8c6983373e
function outbox_append(topic text, key text, payload json, bytes bytea, headers json, known bigint DEFAULT NULL::bigint, id uuid DEFAULT NULL::uuid) returns bigint language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
  body 4a5fdccc5ce7de86a76a025403c101b4
function outbox_append_at(topic text, key text, payload json, bytes bytea, headers json, not_before timestamp with time zone, known bigint DEFAULT NULL::bigint, id uuid DEFAULT NULL::uuid) returns bigint language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
  body 91323ab5da60aa213c64518c23863306
function outbox_append_many(topics text[], keys text[], payloads text[], bytes bytea[], headers text[], locked boolean DEFAULT false, known bigint[] DEFAULT NULL::bigint[]) returns integer language sql volatile security definer set search_path=pg_catalog, pg_temp
  body 6dce876937ca38248d54230ec3bbe61c
function outbox_append_many_at(topics text[], keys text[], payloads text[], bytes bytea[], headers text[], not_befores timestamp with time zone[], locked boolean DEFAULT false, known bigint[] DEFAULT NULL::bigint[]) returns integer language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 9438c89fa38a9fc0cc2505f08c148e16
function outbox_audit_list(before_id bigint, my_verb text, my_topic text, my_key text, my_name text, most integer) returns SETOF lockstep.outbox_audit language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_custom_plan
  body 1004a46d707180d2349b0d041ff0bac4
function outbox_audit_replay(my_topic text, my_key text, my_seq bigint, my_reason text) returns void language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body cc78d1af5c0eec4995124ad63fbb74e6
function outbox_bucket(stream uuid) returns smallint language sql immutable strict parallel safe
  body 18618bec69533c41498647b3d7ee0b43
function outbox_check_headers(topic text, key text, headers json) returns void language plpgsql immutable set search_path=pg_catalog, pg_temp
  body bad49c97edea743e2261bee81eac5f8e
function outbox_check_names(topic text, key text) returns void language plpgsql immutable
  body 755f4074d111aa4f61767f0c0a670653
function outbox_check_time(topic text, key text, not_before timestamp with time zone) returns void language plpgsql immutable
  body 19fda335989fed96c60f25f8b86e8cae
function outbox_dead_find(my_dispatcher text, my_topic text, my_key text, my_ids uuid[], my_error text, after_dispatcher text, after_stream uuid, after_seq bigint, most integer) returns TABLE(dispatcher text, stream uuid, topic text, key text, seq bigint, uuid uuid, enqueued_at timestamp with time zone, died_at timestamp with time zone, reason text, stored bigint, usable boolean) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_custom_plan
  body a3bd81d967ed4ff8c2a3b70011c9787a
function outbox_dispatcher_list() returns TABLE(name text, shards smallint, topics text[], topics_after bigint) language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 984a39be6e9c0b3d2ace93a5c3333ef4
function outbox_dispatcher_names() returns SETOF text language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 48ca951bd7aa67f182184d27d0be27c3
function outbox_drop(min_age interval) returns integer language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body a0c7d4558b1d3446f11a863a0cb0dbce
function outbox_emptied(my_topic text, my_key text, next_seq bigint, OUT emptied_id bigint, OUT gone boolean) returns record language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
  body b88ad0ba087c1d2fccb72f79d8e59533
function outbox_erase(my_topic text, my_key text, my_reason text) returns integer language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 01626ab25c1da86d9f522f69dd51b5d2
function outbox_estimate(slots smallint[], my_group smallint, first_xid xid8, end_xid xid8, after_id bigint, OUT events bigint, OUT exact boolean, OUT oldest timestamp with time zone) returns record language sql stable
  body 593ed68101a86270892301cd857c24af
function outbox_estimate_wanted(slots smallint[], my_group smallint, first_xid xid8, end_xid xid8, after_id bigint, patterns text[], buckets int4range, OUT events bigint, OUT exact boolean, OUT oldest timestamp with time zone) returns record language plpgsql stable set enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off, plan_cache_mode=force_generic_plan
  body 46ed261750b38a049cc23ffc091c19f3
function outbox_events_between(after_id bigint, up_to bigint, my_topic text, from_at timestamp with time zone, to_at timestamp with time zone, newest_first boolean, max_events integer) returns TABLE(id bigint, seq bigint, topic text, key text, uuid uuid, enqueued_at timestamp with time zone, erased boolean, stored bigint) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_custom_plan
  body 7908ecc29a22f3d5ddf6e4ff712017f6
function outbox_events_find(after_id bigint, up_to bigint, my_topic text, my_key text, from_seq bigint, to_seq bigint, from_at timestamp with time zone, to_at timestamp with time zone, header_name text, header_value text, newest_first boolean, max_events integer) returns TABLE(id bigint, seq bigint, topic text, key text, uuid uuid, enqueued_at timestamp with time zone, erased boolean, stored bigint) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_custom_plan
  body 6a3d35b850181b5c20dda2b9bbcdc85b
function outbox_events_of(my_topic text, my_key text, from_seq bigint, to_seq bigint, from_at timestamp with time zone, to_at timestamp with time zone, newest_first boolean, max_events integer, max_scanned integer) returns TABLE(id bigint, seq bigint, topic text, key text, uuid uuid, enqueued_at timestamp with time zone, erased boolean, stored bigint, scanned bigint, last_seq bigint) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off, plan_cache_mode=force_custom_plan
  body 732fe3c09787ed96b08e3c68aa5392b4
function outbox_flush(OUT life text, OUT place pg_lsn) returns record language plpgsql volatile security definer set search_path=pg_catalog, pg_temp
  body fd61999c60d2bf4a364b84e30d844c94
function outbox_flush_read(OUT flushed text) returns text language plpgsql volatile security definer set search_path=pg_catalog, pg_temp
  body d015594715c51736a3d6d375a43c9c18
function outbox_forget_xids(this_system text) returns bigint[] language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 1d4bcbf76653456704eb1539fcc2e467
function outbox_gone(my_dispatcher text, shard_count integer, suspects bigint[], my_holder text, OUT absent bigint[], OUT ended integer) returns record language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 50f227e789b6f2896a959309f0aef474
function outbox_group(bucket smallint) returns smallint language sql immutable strict parallel safe
  body 0cddc91a3a341d08cf76f44f09bf81e2
function outbox_group_lock(bucket_group integer) returns bigint language sql immutable strict parallel safe
  body 20a183c6c024251db28aee10c4022109
function outbox_halt() returns void language plpgsql volatile
  body 986f93532efcefe2a7350b379ed658f3
function outbox_head(my_dispatcher text, my_topic text, my_key text, max_bytes integer) returns TABLE(seq bigint, uuid uuid, enqueued_at timestamp with time zone, headers json, tombstone text, size bigint, payload text, hex text) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 212779efb0434b0f339caa52019082e3
function outbox_held() returns TABLE(dispatcher text, shard text, streams text, next_ms text) language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 66d27baaaf57a50796be54165980e42a
function outbox_here(my_dispatcher text, OUT life text, OUT elsewhere boolean) returns record language plpgsql stable set jit=off
  body 01ee3e4860d63df33adea0ea486abfe9
function outbox_hold(my_dispatcher text, streams uuid[]) returns void language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
  body f50b790bc684751237ae090453649ece
function outbox_import_begin(my_relation regclass, my_definition jsonb, my_reason text) returns integer language plpgsql volatile set search_path=pg_catalog, pg_temp, jit=off
  body e18af1db4ce7c1c224cea66400fadcfd
function outbox_import_copy(my_import integer, most integer) returns bigint language plpgsql volatile set search_path=pg_catalog, pg_temp, jit=off
  body d05a7f6cbd592d802a4476155723b96a
function outbox_import_cut(my_import integer, most integer) returns boolean language plpgsql volatile set search_path=pg_catalog, pg_temp, jit=off
  body a2714e95fc80502260a2f1a22ff245af
function outbox_import_fault(topic text, key text, payload text, bytes bytea, headers text) returns text language plpgsql stable set search_path=pg_catalog, pg_temp, jit=off
  body 776cb58184098e5062fb26459cb44411
function outbox_import_finish(my_import integer, my_reason text) returns void language plpgsql volatile set search_path=pg_catalog, pg_temp, jit=off
  body 5ef06c52f91e22efd800550e2a77b856
function outbox_import_parts(my_relation regclass, definition jsonb, my_row text, OUT topic text, OUT key text, OUT payload text, OUT bytes text, OUT headers text, OUT id text, OUT matches text, OUT sorted text, OUT pending text) returns record language plpgsql stable set search_path=pg_catalog, pg_temp, jit=off
  body 11b5b44292b6416c40223d0cc19db453
function outbox_import_plan(my_import integer) returns bigint language plpgsql volatile set search_path=pg_catalog, pg_temp, jit=off
  body a2013fac72acb2ef4ca45e5590331df6
function outbox_import_preview(my_relation regclass, definition jsonb, my_import integer, OUT pending_rows bigint, OUT streams bigint, OUT topics bigint, OUT refused bigint, OUT refused_ids text[]) returns record language plpgsql stable set search_path=pg_catalog, pg_temp, jit=off
  body 144f29ddfef090ac84fd09d2902cd325
function outbox_import_state(my_name text) returns TABLE(id integer, relation text, planned bigint, copied bigint, gone bigint, cut_at timestamp with time zone, active boolean) language sql stable set search_path=pg_catalog, pg_temp, jit=off
  body 176e4c1ed703ad3b9953d0493c51a399
function outbox_import_verify(my_import integer, OUT streams bigint, OUT missing bigint, OUT late bigint, OUT sent bigint) returns record language plpgsql volatile set search_path=pg_catalog, pg_temp, jit=off
  body 695b1a4006e3755486bb692e3bacc581
function outbox_keep(min_age interval, OUT readied integer, OUT more boolean) returns record language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
  body b3686df3bee757d5ec9e6fae9c6a0c7a
function outbox_last(streams uuid[]) returns bigint[] language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
  body 3be68f07d684ec5c692776b3b274c01e
function outbox_listen(me uuid, for_ms integer) returns void language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 5399e28f0c267f42136fc0ae51a51ed7
function outbox_lock(topics text[], keys text[]) returns void language plpgsql volatile security definer set search_path=pg_catalog, pg_temp
  body 0028047f543dc86a90e93b605e5fe03a
function outbox_lock_streams(streams uuid[]) returns void language plpgsql volatile security definer set search_path=pg_catalog, pg_temp
  body b3bfcaac572437e3cb70b2aabbf6f336
function outbox_look_ahead(my_dispatcher text, shard_count integer, OUT stirred boolean, OUT due_ms bigint) returns record language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
  body 1962d04d14765427efea771a2bf5ff2a
function outbox_max_event_bytes() returns bigint language sql stable parallel safe
  body e3b0c44298fc1c149afbf4c8996fb924
function outbox_move(my_dispatcher text, my_shards smallint[], my_fences bigint[], my_versions bigint[], my_lives text[], new_prevs pg_snapshot[], new_nexts pg_snapshot[], new_afters bigint[], new_dones boolean[], new_seens bigint[]) returns integer language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off, plan_cache_mode=force_generic_plan
  body cf80349055b67165cd7967d5575f0100
function outbox_operate(verb text, my_dispatcher text, my_topic text, my_key text, my_seq bigint, my_reason text, my_id uuid DEFAULT NULL::uuid) returns text language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 6a2b3be998d7878130f2f318c6bf1565
function outbox_owns(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text) returns boolean language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 76d4275a78250867e32721d7ba7d8815
function outbox_parked_due(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, max_streams integer, max_events integer) returns TABLE(attempts integer, event_id bigint, topic text, key text, seq bigint, uuid uuid, enqueued_ms bigint, payload text, hex text, headers text, tombstone text, unreadable bigint, more text) language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
  body 8cebde2c6ed202ec0ba4070cc6109eaa
function outbox_parked_find(my_dispatcher text, my_topic text, my_key text, my_ids uuid[], my_error text, after_stream uuid, most integer) returns TABLE(stream uuid, topic text, key text, state text, attempts integer, reason text, since timestamp with time zone, next_attempt_at timestamp with time zone, events bigint, head bigint, head_id uuid) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body b1f6af666e2e20403e95bac5b0115714
function outbox_parked_list(my_dispatcher text, most integer) returns TABLE(dispatcher text, topic text, key text, state text, attempts integer, reason text, since timestamp with time zone, next_attempt_at timestamp with time zone, events bigint, head bigint, head_id uuid) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 59f461419ace4341fd7b830eaacfc9b9
function outbox_parked_tried(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, outcomes jsonb) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
  body b4a95a733fa3a7ceb6ce6d7dec597ad4
function outbox_passed() returns xid8 language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 97587e5358b5dd373d3a33d919262c3f
function outbox_plain_headers(headers text) returns boolean language sql immutable parallel safe
  body 5acb03fd884ab846c59b0d581cff70c4
function outbox_position() returns bigint language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body e9112ee254bc32bd728fc55711e3339b
function outbox_positions(from_at timestamp with time zone, to_at timestamp with time zone, OUT after_id bigint, OUT up_to bigint) returns record language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_custom_plan
  body 141b45785dcc7f63c39e988e4e4f2378
function outbox_prepare_segment(min_age interval) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body b93c14b16f45fbb2f7b14244f04a5d61
function outbox_read(my_dispatcher text, my_shards smallint[], my_fences bigint[], max_events integer[], shard_count integer) returns TABLE(shard text, verdict text, life text, prev text, next text, version text, last_id text, parked_due_ms text, stale text, whole text, ids text, topics text, keys text, seqs text, uuids text, enqueued text, bodies text, headers text, flags text) language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, plan_cache_mode=force_generic_plan, jit=off
  body d3c1780974f55b44559ffeb34d0b80a8
function outbox_rebase(my_dispatcher text, choice text, this_system text, this_database text, this_timeline bigint, my_reason text) returns bigint language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 4cef696c05bb6c31acb93e1107c0186e
function outbox_redrive_dead(my_dispatcher text, my_streams uuid[], my_seqs bigint[], my_ids uuid[], my_reason text) returns integer language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
  body 7e4936d1e5b634bff3deec29b4d77ed8
function outbox_redrive_parked(my_dispatcher text, my_streams uuid[], my_reason text) returns uuid[] language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
  body ce3b1a759d7db7f08a95a3c2fd5632f4
function outbox_refuse_isolation() returns void language plpgsql stable
  body a13b4ef7902c9edf66f34873165383b5
function outbox_refuse_payload(topic text, key text, json_bytes integer, bytes_bytes integer, header_bytes integer) returns void language plpgsql stable
  body 2bb977b78a5f5bb1ed4f2c047e8746e3
function outbox_register(my_name text, my_shards smallint, this_system text, this_database text, this_timeline bigint, shards_stated boolean, my_retain_ms bigint, OUT shards smallint, OUT system text, OUT database text, OUT timeline bigint) returns record language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 2cc9147898f51fcd62e635dc09b084d5
function outbox_register_dispatcher(my_name text, my_shards smallint, this_system text, this_database text, this_timeline bigint, shards_stated boolean, my_retain_ms bigint, known bigint, OUT shards smallint, OUT system text, OUT database text, OUT timeline bigint, OUT begun bigint, OUT was_split boolean) returns record language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body fc85587ac4f32fc86973dbbada223922
function outbox_remove(my_dispatcher text, my_reason text) returns text language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 4f24718199cdc4c8c9c770059a426e8b
function outbox_replay_after(after_id bigint, up_to bigint, my_topic text, most integer) returns SETOF lockstep.outbox_events language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_custom_plan
  body f4a3158f6b0df25c195da29bc07b06da
function outbox_replay_stream(my_topic text, my_key text, from_seq bigint, to_seq bigint, up_to bigint, most integer) returns SETOF lockstep.outbox_events language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_custom_plan
  body cbcee033b91eadca007d962b0ac9a436
function outbox_replicated(place pg_lsn) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp
  body c58be75e45b172365853e1defd6c271a
function outbox_resting() returns TABLE(name text, holder text) language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body bbfc87f6a2cf3e83862a73a11a573cc7
function outbox_retention() returns interval language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body a2e0738112ca6601d9636a8bddb2ba9e
function outbox_ring(hint text DEFAULT ''::text) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 8466d3a248b374e4c36cc1ea1fac28f4
function outbox_rotate() returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body b2eeb8b6755c34f3ae1b8b3d11aa0634
function outbox_running(given pg_snapshot) returns integer language sql immutable strict parallel safe
  body a1a2bd69f7a4fa062116cc5ce47a696c
function outbox_seal() returns integer language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 7b7ea5d4abeacb334ea1bf871f2cce1b
function outbox_segment_list() returns TABLE(number bigint, opened_at timestamp with time zone, left_at timestamp with time zone, bytes bigint, is_current boolean) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 3559f7ebc8db4a51b16ba6fd2669b4f4
function outbox_shard(bucket smallint, shards smallint) returns smallint language sql immutable strict parallel safe
  body de9245898303ad661e826e6ce63f4c96
function outbox_shard_lock(my_dispatcher text, my_shard smallint) returns bigint language plpgsql immutable strict parallel safe
  body 63c0a117bb837dac0b151f06f466c021
function outbox_shares(my_dispatcher text, me text, OUT shards integer, OUT members integer, OUT place integer, OUT held integer[]) returns record language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 38886fba57078ac5e6bd02cd3de75888
function outbox_split(my_dispatcher text, from_shards integer, to_shards integer, my_reason text) returns text language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 505285cc560edf4a512744efb1a37267
function outbox_split_begin(my_dispatcher text, to_shards integer, for_ms integer, OUT answer text, OUT shards integer, OUT owned integer, OUT parked bigint) returns record language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 8e5f2fc30e11cab862e8da33156bd491
function outbox_status() returns TABLE(dispatcher text, shard text, fence text, moved_ms text, parked text, lag_events text, lag_exact text, oldest_ms text) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, jit=off, plan_cache_mode=force_generic_plan
  body d51385400bda805ca39623bfc642c66a
function outbox_stored_bytes(payload json, bytes bytea, headers json) returns bigint language sql stable parallel safe
  body 1783f5159995fbb8b23e9af06df8408c
function outbox_stream(topic text, key text) returns uuid language sql immutable strict parallel safe
  body 43b54b312f6897700b98dfd5880bdab9
function outbox_stream_lock(stream uuid) returns bigint language sql immutable strict parallel safe
  body 205b4455f4a62429d1be7ee443108dfd
function outbox_subscribe(my_name text, my_topics text[], change boolean, OUT answer text, OUT before text[], OUT topics_after bigint) returns record language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 104988cb49536e324fe2e6102d755e3a
function outbox_take(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, shard_count integer) returns text language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 006ea25a28bd991f50b777417cbfad47
function outbox_take_shard(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, shard_count integer, my_topics text[]) returns text language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 832a0a3c428dc0ec6ddd6fb2d39668c5
function outbox_tick(at_id bigint) returns void language plpgsql volatile set jit=off
  body a56a97790d88df4916ddaa2ec8848dc5
function outbox_todo(my_dispatcher text, shard_count integer) returns integer[] language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
  body 60dead5e9a405c21de42e0adf29fd510
function outbox_topic_patterns(topics text[]) returns text[] language sql immutable parallel safe
  body 11a301b2106eb5d85abbd89d903077c4
function outbox_unpark(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, topics text[], keys text[]) returns integer language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 434680a2d83a18740e2104ccff6e6df7
function outbox_window_parts(slots smallint[], groups smallint[], a pg_snapshot, z pg_snapshot, OUT part_groups smallint[], OUT part_xids xid8[]) returns record language plpgsql stable set enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off, plan_cache_mode=force_generic_plan
  body c9288f425269121fb6d0ec137d757d6d
function rollout_rules() returns SETOF lockstep.rollout language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body 33ef876903c8085240d9fdb1a8e2d667
function rollout_set(my_prefix text, my_mode text, my_percent integer, my_reason text) returns void language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 9e2146b0b6d3363555ae12691742aea5
function rollout_switch_back(my_prefix text, seen text, my_reason text) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body ef41b866280f03c27151c929765857c1
function rollout_unset(my_prefix text) returns SETOF text language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
  body 7966de6cf742c927c9fc78c7d771ac29
function schema_version(OUT version integer, OUT compatible_from integer) returns record language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
  body a3c5e13b4d1622fe6f96af9f2517897c
sequence epoch_first_id bigint cache 1
sequence epoch_mark bigint cache 1
sequence epochs_number_seq bigint cache 1
sequence fences bigint cache 1
sequence guard_samples_id_seq bigint cache 1
sequence guards_id_seq integer cache 1
sequence lease_history_id_seq bigint cache 1
sequence lease_waiters_place_seq bigint cache 1
sequence outbox_audit_id_seq bigint cache 1
sequence outbox_ids bigint cache 1
sequence outbox_imports_id_seq integer cache 1
sequence outbox_slot smallint cache 1
table epoch
  column one boolean not null default true
  column system bigint not null
  column database oid not null
  column timeline bigint not null
  column timeline_offset bigint not null
  column max_ttl_ms integer not null default 60000
  column granted_ttl_ms integer
  column synchronous_failover boolean not null default false
  column began_at timestamp with time zone
  column grants_from timestamp with time zone
  column mark bigint
  constraint epoch_one_check CHECK (one)
  constraint epoch_pkey PRIMARY KEY (one)
  CREATE UNIQUE INDEX epoch_pkey ON lockstep.epoch USING btree (one)
table epochs
  column number bigint not null
  column history uuid not null
  column generation bigint not null
  column kind text not null
  column timeline bigint not null
  column system bigint not null
  column database oid not null
  column address text
  column began_at timestamp with time zone not null
  column last_known_at timestamp with time zone
  column after_id bigint not null
  column began_lsn pg_lsn not null
  constraint epochs_kind_check CHECK ((kind = ANY (ARRAY['first'::text, 'restart'::text, 'timeline'::text, 'copy'::text])))
  constraint epochs_pkey PRIMARY KEY (number)
  CREATE UNIQUE INDEX epochs_pkey ON lockstep.epochs USING btree (number)
table functions
  column name text not null
  column hash text not null
  column replaced_at timestamp with time zone not null default clock_timestamp()
  constraint functions_pkey PRIMARY KEY (name)
  CREATE UNIQUE INDEX functions_pkey ON lockstep.functions USING btree (name)
table guard_samples
  column id bigint not null
  column guard integer not null
  column at timestamp with time zone not null default clock_timestamp()
  column operation text not null
  column key text
  column application text not null
  column role text not null
  column query text not null
  constraint guard_samples_pkey PRIMARY KEY (id)
  CREATE INDEX guard_samples_guard_at ON lockstep.guard_samples USING btree (guard, at)
  CREATE UNIQUE INDEX guard_samples_pkey ON lockstep.guard_samples USING btree (id)
table guards
  column id integer not null
  column relation text not null
  column key text not null
  column columns text[] not null
  column held text not null
  column mode text not null
  column percent integer
  column reason text not null default ''::text
  column added_at timestamp with time zone not null default clock_timestamp()
  column changed_at timestamp with time zone not null default clock_timestamp()
  constraint guards_check CHECK (((mode = 'percent'::text) = (percent IS NOT NULL)))
  constraint guards_held_check CHECK ((held = ANY (ARRAY['lock'::text, 'lease'::text])))
  constraint guards_mode_check CHECK ((mode = ANY (ARRAY['observe'::text, 'enforce'::text, 'percent'::text])))
  constraint guards_percent_check CHECK (((percent >= 0) AND (percent <= 100)))
  constraint guards_pkey PRIMARY KEY (id)
  constraint guards_relation_key_key UNIQUE (relation, key)
  CREATE UNIQUE INDEX guards_pkey ON lockstep.guards USING btree (id)
  CREATE UNIQUE INDEX guards_relation_key_key ON lockstep.guards USING btree (relation, key)
table idempotency
  column scope text not null
  column key text not null
  column fingerprint bytea not null
  column status integer not null
  column headers json not null
  column body bytea not null
  column created_at timestamp with time zone not null
  column expires_at timestamp with time zone not null
  constraint idempotency_pkey PRIMARY KEY (scope, key)
  CREATE INDEX idempotency_expires_at ON lockstep.idempotency USING btree (expires_at)
  CREATE UNIQUE INDEX idempotency_pkey ON lockstep.idempotency USING btree (scope, key)
table inbox
  column consumer text not null
  column topic text not null
  column key text not null
  column seq bigint not null
  column uuid uuid
  column generation bigint
  constraint inbox_pkey PRIMARY KEY (consumer, topic, key)
  constraint inbox_seq_check CHECK ((seq >= 0))
  CREATE UNIQUE INDEX inbox_pkey ON lockstep.inbox USING btree (consumer, topic, key)
unlogged table incarnation
  column one boolean not null default true
  column value uuid not null
  column epoch bigint not null
  column timeline text not null
  column system bigint not null
  column database oid not null
  column began_at timestamp with time zone not null
  constraint incarnation_one_check CHECK (one)
  constraint incarnation_pkey PRIMARY KEY (one)
  CREATE UNIQUE INDEX incarnation_pkey ON lockstep.incarnation USING btree (one)
table lease_history
  column id bigint not null
  column name text not null
  column slot integer not null
  column fence bigint not null
  column holder text not null
  column metadata jsonb
  column acquired_at timestamp with time zone not null
  column ended_at timestamp with time zone not null
  column ending text not null
  column ended_by text
  column reason text
  constraint lease_history_ending_check CHECK ((ending = ANY (ARRAY['released'::text, 'expired'::text, 'forced'::text])))
  constraint lease_history_pkey PRIMARY KEY (id)
  CREATE INDEX lease_history_name ON lockstep.lease_history USING btree (name, id)
  CREATE UNIQUE INDEX lease_history_pkey ON lockstep.lease_history USING btree (id)
table lease_waiters
  column place bigint not null
  column name text not null
  column token uuid not null
  column holder text not null
  column since timestamp with time zone not null default clock_timestamp()
  column expires_at timestamp with time zone not null
  constraint lease_waiters_pkey PRIMARY KEY (place)
  constraint lease_waiters_token_key UNIQUE (token)
  CREATE INDEX lease_waiters_name ON lockstep.lease_waiters USING btree (name, place)
  CREATE UNIQUE INDEX lease_waiters_pkey ON lockstep.lease_waiters USING btree (place)
  CREATE UNIQUE INDEX lease_waiters_token_key ON lockstep.lease_waiters USING btree (token)
table leases
  column name text not null
  column slot integer not null
  column permits integer not null
  column fence bigint not null
  column token uuid
  column holder text not null
  column metadata jsonb
  column acquired_at timestamp with time zone not null
  column expires_at timestamp with time zone not null
  column remembered boolean not null default true
  column ttl_ms integer
  constraint leases_check CHECK ((permits > slot))
  constraint leases_name_fence_key UNIQUE (name, fence)
  constraint leases_pkey PRIMARY KEY (name, slot)
  CREATE UNIQUE INDEX leases_name_fence_key ON lockstep.leases USING btree (name, fence)
  CREATE UNIQUE INDEX leases_pkey ON lockstep.leases USING btree (name, slot)
unlogged table lock_names
  column id bigint not null
  column key text not null
  column seen_at timestamp with time zone not null default clock_timestamp()
  constraint lock_names_pkey PRIMARY KEY (id)
  CREATE INDEX lock_names_seen_at ON lockstep.lock_names USING btree (seen_at)
  CREATE UNIQUE INDEX lock_names_pkey ON lockstep.lock_names USING btree (id)
table lock_rows
  column id bigint not null
  constraint lock_rows_pkey PRIMARY KEY (id)
  CREATE UNIQUE INDEX lock_rows_pkey ON lockstep.lock_rows USING btree (id)
table lock_trials
  column system bigint not null
  column route text not null
  column strategy text not null
  column pooled boolean not null
  column connections smallint not null
  column version integer not null
  column tried_at timestamp with time zone not null default clock_timestamp()
  constraint lock_trials_pkey PRIMARY KEY (system, route, strategy, pooled)
  CREATE UNIQUE INDEX lock_trials_pkey ON lockstep.lock_trials USING btree (system, route, strategy, pooled)
table migrations
  column version integer not null
  column name text not null
  column compatible_from integer not null
  column applied_at timestamp with time zone not null default clock_timestamp()
  constraint migrations_pkey PRIMARY KEY (version)
  CREATE UNIQUE INDEX migrations_pkey ON lockstep.migrations USING btree (version)
table outbox_audit
  column id bigint not null
  column at timestamp with time zone not null default clock_timestamp()
  column by_role text not null default SESSION_USER
  column by_name text default NULLIF(current_setting('lockstep.by'::text, true), ''::text)
  column by_address inet default inet_client_addr()
  column verb text not null
  column dispatcher text
  column topic text
  column key text
  column seq bigint
  column reason text
  constraint outbox_audit_pkey PRIMARY KEY (id)
  CREATE UNIQUE INDEX outbox_audit_pkey ON lockstep.outbox_audit USING btree (id)
table outbox_cursors
  column dispatcher text not null
  column shard smallint not null
  column version bigint not null
  column fence bigint not null
  column prev pg_snapshot not null
  column next pg_snapshot not null
  column after_id bigint not null
  column done boolean not null
  column seen_id bigint not null
  column moved_at timestamp with time zone not null default clock_timestamp()
  constraint outbox_cursors_pkey PRIMARY KEY (dispatcher, shard, version)
  CREATE UNIQUE INDEX outbox_cursors_pkey ON lockstep.outbox_cursors USING btree (dispatcher, shard, version)
table outbox_dead
  column dispatcher text not null
  column stream uuid not null
  column seq bigint not null
  column id bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column reason text
  column died_at timestamp with time zone not null default clock_timestamp()
  constraint outbox_dead_pkey PRIMARY KEY (dispatcher, stream, seq)
  CREATE UNIQUE INDEX outbox_dead_pkey ON lockstep.outbox_dead USING btree (dispatcher, stream, seq)
table outbox_dispatchers
  column name text not null
  column shards smallint not null
  column system text not null
  column database text not null
  column timeline bigint not null
  column retain_ms bigint default 604800000
  column created_at timestamp with time zone not null default clock_timestamp()
  column topics text[]
  column topics_after bigint not null default 0
  column paused_until timestamp with time zone
  column split_from smallint
  column split_fence bigint
  constraint outbox_dispatchers_pkey PRIMARY KEY (name)
  CREATE UNIQUE INDEX outbox_dispatchers_pkey ON lockstep.outbox_dispatchers USING btree (name)
table outbox_events
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column bucket_group smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  column not_before timestamp with time zone
table outbox_events_0
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column bucket_group smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  column not_before timestamp with time zone
  CREATE INDEX outbox_events_0_id ON lockstep.outbox_events_0 USING brin (id) WITH (pages_per_range='16', autosummarize='on')
  CREATE INDEX outbox_events_0_xid ON lockstep.outbox_events_0 USING btree (bucket_group, xid, id)
  CREATE UNIQUE INDEX outbox_events_0_stream ON lockstep.outbox_events_0 USING btree (stream, seq)
table outbox_events_1
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column bucket_group smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  column not_before timestamp with time zone
  CREATE INDEX outbox_events_1_id ON lockstep.outbox_events_1 USING brin (id) WITH (pages_per_range='16', autosummarize='on')
  CREATE INDEX outbox_events_1_xid ON lockstep.outbox_events_1 USING btree (bucket_group, xid, id)
  CREATE UNIQUE INDEX outbox_events_1_stream ON lockstep.outbox_events_1 USING btree (stream, seq)
table outbox_events_2
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column bucket_group smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  column not_before timestamp with time zone
  CREATE INDEX outbox_events_2_id ON lockstep.outbox_events_2 USING brin (id) WITH (pages_per_range='16', autosummarize='on')
  CREATE INDEX outbox_events_2_xid ON lockstep.outbox_events_2 USING btree (bucket_group, xid, id)
  CREATE UNIQUE INDEX outbox_events_2_stream ON lockstep.outbox_events_2 USING btree (stream, seq)
table outbox_events_3
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column bucket_group smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  column not_before timestamp with time zone
  CREATE INDEX outbox_events_3_id ON lockstep.outbox_events_3 USING brin (id) WITH (pages_per_range='16', autosummarize='on')
  CREATE INDEX outbox_events_3_xid ON lockstep.outbox_events_3 USING btree (bucket_group, xid, id)
  CREATE UNIQUE INDEX outbox_events_3_stream ON lockstep.outbox_events_3 USING btree (stream, seq)
table outbox_events_4
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column bucket_group smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  column not_before timestamp with time zone
  CREATE INDEX outbox_events_4_id ON lockstep.outbox_events_4 USING brin (id) WITH (pages_per_range='16', autosummarize='on')
  CREATE INDEX outbox_events_4_xid ON lockstep.outbox_events_4 USING btree (bucket_group, xid, id)
  CREATE UNIQUE INDEX outbox_events_4_stream ON lockstep.outbox_events_4 USING btree (stream, seq)
table outbox_events_5
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column bucket_group smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  column not_before timestamp with time zone
  CREATE INDEX outbox_events_5_id ON lockstep.outbox_events_5 USING brin (id) WITH (pages_per_range='16', autosummarize='on')
  CREATE INDEX outbox_events_5_xid ON lockstep.outbox_events_5 USING btree (bucket_group, xid, id)
  CREATE UNIQUE INDEX outbox_events_5_stream ON lockstep.outbox_events_5 USING btree (stream, seq)
table outbox_events_6
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column bucket_group smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  column not_before timestamp with time zone
  CREATE INDEX outbox_events_6_id ON lockstep.outbox_events_6 USING brin (id) WITH (pages_per_range='16', autosummarize='on')
  CREATE INDEX outbox_events_6_xid ON lockstep.outbox_events_6 USING btree (bucket_group, xid, id)
  CREATE UNIQUE INDEX outbox_events_6_stream ON lockstep.outbox_events_6 USING btree (stream, seq)
table outbox_events_7
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column bucket_group smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  column not_before timestamp with time zone
  CREATE INDEX outbox_events_7_id ON lockstep.outbox_events_7 USING brin (id) WITH (pages_per_range='16', autosummarize='on')
  CREATE INDEX outbox_events_7_xid ON lockstep.outbox_events_7 USING btree (bucket_group, xid, id)
  CREATE UNIQUE INDEX outbox_events_7_stream ON lockstep.outbox_events_7 USING btree (stream, seq)
table outbox_home
  column one boolean not null default true
  column system text not null
  column emptied_id bigint not null default 0
  constraint outbox_home_one_check CHECK (one)
  constraint outbox_home_pkey PRIMARY KEY (one)
  CREATE UNIQUE INDEX outbox_home_pkey ON lockstep.outbox_home USING btree (one)
table outbox_import_rows
  column import integer not null
  column place bigint not null
  column id text not null
  column stream uuid
  column seq bigint
  constraint outbox_import_rows_pkey PRIMARY KEY (import, place)
  CREATE UNIQUE INDEX outbox_import_rows_id ON lockstep.outbox_import_rows USING btree (import, id)
  CREATE UNIQUE INDEX outbox_import_rows_pkey ON lockstep.outbox_import_rows USING btree (import, place)
table outbox_imports
  column id integer not null
  column relation text not null
  column definition jsonb not null
  column reason text not null
  column started_at timestamp with time zone not null default clock_timestamp()
  column planned bigint not null default 0
  column copied bigint not null default 0
  column gone bigint not null default 0
  column cut_at timestamp with time zone
  column finished_at timestamp with time zone
  constraint outbox_imports_pkey PRIMARY KEY (id)
  CREATE UNIQUE INDEX outbox_imports_pkey ON lockstep.outbox_imports USING btree (id)
  CREATE UNIQUE INDEX outbox_imports_unfinished ON lockstep.outbox_imports USING btree (relation) WHERE (finished_at IS NULL)
unlogged table outbox_listeners
  column listener uuid not null
  column until timestamp with time zone not null
  constraint outbox_listeners_pkey PRIMARY KEY (listener)
  CREATE UNIQUE INDEX outbox_listeners_pkey ON lockstep.outbox_listeners USING btree (listener)
table outbox_parked
  column dispatcher text not null
  column stream uuid not null
  column shard smallint not null
  column topic text not null
  column key text not null
  column state text not null
  column attempts integer not null default 0
  column reason text
  column since timestamp with time zone not null default clock_timestamp()
  column next_attempt_at timestamp with time zone not null default clock_timestamp()
  column sent_seq bigint not null default 0
  column held_until timestamp with time zone
  constraint outbox_parked_pkey PRIMARY KEY (dispatcher, stream)
  constraint outbox_parked_state_check CHECK ((state = ANY (ARRAY['parked'::text, 'blocked'::text, 'paused'::text])))
  CREATE INDEX outbox_parked_due ON lockstep.outbox_parked USING btree (dispatcher, shard, next_attempt_at) WHERE (state = 'parked'::text)
  CREATE INDEX outbox_parked_shard ON lockstep.outbox_parked USING btree (dispatcher, shard)
  CREATE UNIQUE INDEX outbox_parked_pkey ON lockstep.outbox_parked USING btree (dispatcher, stream)
table outbox_parked_events
  column dispatcher text not null
  column stream uuid not null
  column seq bigint not null
  column id bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column tombstone text
  column not_before timestamp with time zone
  constraint outbox_parked_events_pkey PRIMARY KEY (dispatcher, stream, seq)
  CREATE UNIQUE INDEX outbox_parked_events_pkey ON lockstep.outbox_parked_events USING btree (dispatcher, stream, seq)
table outbox_quiet
  column stream uuid not null
  column topic text not null
  column key text not null
  column seq bigint not null
  constraint outbox_quiet_pkey PRIMARY KEY (stream)
  CREATE UNIQUE INDEX outbox_quiet_pkey ON lockstep.outbox_quiet USING btree (stream)
table outbox_segments
  column slot smallint not null
  column number bigint not null
  column opened_at timestamp with time zone not null
  column left_at timestamp with time zone
  column sealed_xid xid8
  column kept_stream uuid
  column last_id bigint
  column kept_at timestamp with time zone
  constraint outbox_segments_pkey PRIMARY KEY (slot)
  CREATE UNIQUE INDEX outbox_segments_pkey ON lockstep.outbox_segments USING btree (slot)
unlogged table outbox_ticks
  column newest xid8 not null
  column running integer not null
  column id bigint not null
  column snapshot pg_snapshot not null
  column written pg_lsn
  CREATE INDEX outbox_ticks_order ON lockstep.outbox_ticks USING btree (newest, running DESC)
table rollout
  column prefix text not null
  column mode text not null
  column percent integer
  column reason text not null default ''::text
  column changed_at timestamp with time zone not null default clock_timestamp()
  constraint rollout_check CHECK (((mode = 'percent'::text) = (percent IS NOT NULL)))
  constraint rollout_mode_check CHECK ((mode = ANY (ARRAY['off'::text, 'observe'::text, 'on'::text, 'percent'::text])))
  constraint rollout_percent_check CHECK (((percent >= 0) AND (percent <= 100)))
  constraint rollout_pkey PRIMARY KEY (prefix)
  CREATE UNIQUE INDEX rollout_pkey ON lockstep.rollout USING btree (prefix)
