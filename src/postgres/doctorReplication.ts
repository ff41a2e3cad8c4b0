import type { Connection } from './connection.ts'
import type { Finding } from './doctorFinding.ts'
import { replicationState } from './doctorReplication.sql.ts'

interface Row {
  readonly timeline: string | null
  readonly names: string
  readonly commits: string
  readonly standbys: string
  readonly seen: string
  readonly synchronous: string
  readonly lag: string | null
  readonly slots: string
  readonly unused: string
  /** Bytes of the log that an unread slot keeps. */
  readonly kept: string | null
  readonly ttl: string
  readonly stated: string
}

/** What an acknowledged commit is worth here, and whether that is what an operator has stated. */
export async function replicationFinding(connection: Connection, quotedSchema: string): Promise<Finding> {
  const [result] = await connection.script(replicationState(quotedSchema))
  const row = result?.rows[0] as unknown as Row
  return worthOf(row)
}

function slotsOf({ slots, unused, kept }: Row): string {
  if (slots === '0') return ''
  const idle =
    unused === '0'
      ? ''
      : `, ${unused} of them not in use${kept === null ? '' : `, which retain ${kept} bytes of the log`}`
  return `; slots: ${slots}${idle}`
}

function worthOf(row: Row): Finding {
  const name = 'replication'
  const waits = row.names !== '' && row.commits !== 'off' && row.commits !== 'local'
  const standbys = Number(row.standbys)
  const lag = row.lag === null ? '' : `, at most ${row.lag} bytes behind`
  const seen =
    row.seen === row.standbys
      ? `${row.synchronous} of them synchronous${lag}`
      : 'their state is not visible to this role'
  const followed = standbys === 0 ? 'no standby is connected' : `standbys: ${standbys}, ${seen}`
  const wait =
    row.stated === 'true'
      ? 'New leases do not wait after a failover.'
      : `New leases wait ${row.ttl} ms after a failover.`
  const facts = `timeline ${row.timeline ?? 'of the primary'}; ${followed}${slotsOf(row)}.`
  if (!waits && row.stated === 'true') {
    return {
      name,
      level: 'fail',
      found: `${facts} A commit does not wait for a standby, and synchronousFailover is stated.`,
      advice:
        'Set synchronous_standby_names, and synchronous_commit to on or remote_apply. Or run migrate({ synchronousFailover: false }): a failover can lose leases that were granted.',
    }
  }
  if (waits && standbys > 0 && row.synchronous === '0' && row.seen === row.standbys) {
    return {
      name,
      level: 'warn',
      found: `${facts} Commits wait for a synchronous standby, and none is connected.`,
      advice: 'Start the standby that synchronous_standby_names names. Until then every COMMIT waits.',
    }
  }
  const worth = waits
    ? 'An acknowledged commit is on the disk of this server and of a standby.'
    : standbys > 0
      ? 'An acknowledged commit is on the disk of this server alone: a failover can lose the last ones.'
      : 'An acknowledged commit is on the disk of this server.'
  return { name, level: 'ok', found: `${facts} ${worth} ${wait}`, advice: '' }
}
