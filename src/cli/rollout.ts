import type { RolloutMode, StoredRolloutRule } from '../index.ts'
import type { Call, Command, Outcome } from './command.ts'
import { table } from './table.ts'
import type { Terminal } from './terminal.ts'
import { UsageError } from './usageError.ts'
import { withDatabase } from './withDatabase.ts'
import { formatTime } from './formatting.ts'

const SET =
  'Write `pg-lockstep rollout set PREFIX off|observe|on|N%`, with PREFIX such as Transfer: or "" for all keys.'

export const rolloutCommand: Command = {
  name: 'rollout',
  summary: 'Show or change which keys are locked and which are only observed',
  usage: '[set PREFIX off|observe|on|N% [--reason TEXT] | unset PREFIX]',
  details: `Shows the rules that every Lockstep with rollout: 'database' follows within seconds. The rule with the longest matching
prefix applies. Keys without a rule are locked. N% locks that share of the keys and observes the others.`,
  examples: [
    { line: 'pg-lockstep rollout', does: 'show the rules' },
    { line: 'pg-lockstep rollout set Transfer: observe --reason "first week"', does: 'observe only, lock nothing' },
    { line: 'pg-lockstep rollout set Transfer: 10%', does: 'lock one key in ten' },
    { line: 'pg-lockstep rollout unset Transfer:', does: 'remove the rule: lock all keys' },
  ],
  options: ['url', 'schema', 'driver', 'reason', 'json'],
  words: ['set', 'unset'],
  moreWords: 2,
  run(call) {
    const change = changeOf(call)
    return withDatabase(call.values, async ({ lockstep }): Promise<Outcome> => {
      const done = await change?.(lockstep.rollout)
      const rules = await lockstep.rollout.list()
      return {
        exitCode: 0,
        json: { ok: true, command: 'rollout', schema: lockstep.schema, rules },
        text: (terminal) => [...(done === undefined ? [] : [done]), report(rules, terminal)].join('\n\n'),
      }
    })
  },
}

interface Rules {
  set(prefix: string, mode: RolloutMode, options: { readonly reason: string }): Promise<void>
  unset(prefix: string): Promise<boolean>
}

/** What is to be done to the rules, checked before a database is asked; undefined: nothing. */
function changeOf({ words, values }: Call): ((rules: Rules) => Promise<string>) | undefined {
  const [verb, prefix, mode, ...rest] = words
  if (verb !== 'set' && values.reason !== undefined) throw new UsageError('--reason is for `rollout set`.', SET)
  if (verb === undefined) return undefined
  if (prefix === undefined) throw new UsageError('No prefix was named.', SET)
  if (verb === 'unset') {
    if (mode !== undefined) throw new UsageError('`rollout unset` takes a prefix and nothing else.', SET)
    return async (rules) => {
      const was = await rules.unset(prefix)
      return was ? `The rule for ${shown(prefix)} is gone.` : `There was no rule for ${shown(prefix)}.`
    }
  }
  if (mode === undefined || rest.length > 0) throw new UsageError('No mode was named.', SET)
  const wanted = modeOf(mode)
  return async (rules) => {
    await rules.set(prefix, wanted, { reason: values.reason ?? '' })
    return `${shown(prefix)} is ${named(wanted)}. Processes follow within seconds.`
  }
}

function modeOf(text: string): RolloutMode {
  if (text === 'off' || text === 'observe' || text === 'on') return text
  const percent = /^(\d{1,3})%$/.exec(text)?.[1]
  if (percent !== undefined && Number(percent) <= 100) return { percent: Number(percent) }
  throw new UsageError(`Unknown mode ${JSON.stringify(text)}.`, SET)
}

function named(mode: RolloutMode): string {
  return typeof mode === 'string' ? mode : `${mode.percent}%`
}

function shown(prefix: string): string {
  return prefix === '' ? '(all keys)' : prefix
}

function report(rules: readonly StoredRolloutRule[], { columns, paint }: Terminal): string {
  if (rules.length === 0) return 'There are no rules: every key is locked.'
  const head = ['keys', 'mode', 'since', 'why'].map((title) => paint('bold', title))
  const rows = rules.map(({ prefix, mode, changedAt, reason }) => {
    return [shown(prefix), named(mode), formatTime(changedAt), reason]
  })
  return table([head, ...rows], columns)
}
