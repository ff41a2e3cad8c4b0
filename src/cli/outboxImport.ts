import type { Imported, ImportOptions } from '../index.ts'
import type { Call, Outcome } from './command.ts'
import { forJson } from './forJson.ts'
import { count, singleLine } from './formatting.ts'
import { parseNumber } from './parseValues.ts'
import type { Terminal } from './terminal.ts'
import { UsageError } from './usageError.ts'
import { userName } from './userName.ts'
import { withDatabase } from './withDatabase.ts'

const COLUMNS =
  'TOPIC and KEY are text with columns in braces, such as orders or {aggregateid}; COLUMN is a column of the table.'

/** Moves an outbox table of the user's into the outbox. */
export function importTable({ values }: Call, advice: string): Promise<Outcome> {
  const { table, reason } = values
  const preview = values.preview !== undefined
  if (table === undefined) throw new UsageError('--table is missing.', advice)
  if (reason === undefined && !preview) throw new UsageError('--reason is missing.', advice)
  const wait = values.wait === undefined ? {} : { waitMs: parseNumber('wait', values.wait) }
  const who = { by: userName(), ...(reason === undefined ? {} : { reason }), ...wait }
  if (values.finish !== undefined) return finish(values, table, who, advice)
  const { topic, key, order, id, payload, headers, sent } = values
  if (topic === undefined || key === undefined || order === undefined) {
    throw new UsageError('--topic, --key or --order is missing.', `${advice} ${COLUMNS}`)
  }
  const options: ImportOptions = {
    topic,
    key,
    order,
    preview,
    ...who,
    ...(id === undefined ? {} : { id }),
    ...(payload === undefined ? {} : { payload }),
    ...(headers === undefined ? {} : { headers }),
    ...(sent === undefined ? {} : { sent }),
  }
  return withDatabase(values, async ({ lockstep }): Promise<Outcome> => {
    const imported = await lockstep.outbox.import(table, options)
    const sound = preview ? imported.refused === 0 : imported.missing === 0
    return {
      exitCode: sound ? 0 : 1,
      json: { ok: sound, command: 'outbox import', schema: lockstep.schema, ...forJson(imported) },
      text: (terminal) => report(imported, terminal),
    }
  })
}

function finish(
  values: Call['values'],
  table: string,
  who: { readonly by: string; readonly reason?: string },
  advice: string,
): Promise<Outcome> {
  const { reason } = who
  if (reason === undefined) throw new UsageError('--reason is missing.', advice)
  return withDatabase(values, async ({ lockstep }): Promise<Outcome> => {
    await lockstep.outbox.finishImport(table, { ...who, reason })
    const none = { pending: 0, copied: 0, gone: 0, streams: 0, refused: 0, missing: 0, late: 0, sentSince: 0 }
    return {
      exitCode: 0,
      json: {
        ok: true,
        command: 'outbox import',
        schema: lockstep.schema,
        table,
        state: 'finished',
        ...none,
        refusedIds: [],
      },
      text: () => `The trigger of ${singleLine(table)} is gone: new rows become no events. What was imported stays.`,
    }
  })
}

function report(imported: Imported, { paint }: Terminal): string {
  const { table, state, pending, copied, gone, streams, refused, refusedIds, missing, late, sentSince } = imported
  const name = singleLine(table)
  if (state === 'preview') {
    const lines = [`${count(pending, 'row')} of ${name} would be imported, into ${count(streams, 'stream')}.`]
    if (copied > 0) lines.push(`${count(copied, 'row')} ${copied === 1 ? 'is' : 'are'} imported already.`)
    if (refused > 0) {
      const ids = refusedIds.map(singleLine).join(', ')
      lines.push(paint('red', `The outbox would refuse ${count(refused, 'row')}, such as those with the ids ${ids}.`))
    }
    return lines.join('\n')
  }
  const lines = [
    `${count(copied, 'row')} of ${name} ${copied === 1 ? 'is' : 'are'} imported, into ${count(streams, 'stream')}.`,
    state === 'active'
      ? 'The trigger is in place: each new row becomes an event. When no old code writes any more, run it with --finish.'
      : `It was interrupted: ${count(pending, 'row')} ${pending === 1 ? 'is' : 'are'} left. Run it again to go on.`,
  ]
  if (gone > 0) lines.push(`${count(gone, 'row')} were deleted or marked as sent before they were copied.`)
  if (late > 0) lines.push(`${count(late, 'row')} were committed after a row of their key with a larger number.`)
  if (sentSince > 0) {
    lines.push(
      paint(
        'yellow',
        `${count(sentSince, 'row')} were deleted or marked as sent afterwards: does the old relay still run?`,
      ),
    )
  }
  lines.push(missing === 0 ? 'Verified: every row has its event.' : paint('red', `${count(missing, 'event')} missing.`))
  return lines.join('\n')
}
