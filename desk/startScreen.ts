import type { DeskDatabase } from './openDatabase.ts'
import { curls } from './curls.ts'
import type { DeskOptions } from './options.ts'

/** One line: which address to open. The console's token, if it was made for this run, is on a second one. */
export function openLines(origin: string, { headless, token, consoleToken }: DeskOptions): string[] {
  const open = headless ? `The desk answers at ${origin}/` : `Open ${origin}/`
  const made = consoleToken !== undefined && consoleToken !== token
  return [open, ...(made ? [`The console's token for this run: ${consoleToken}`] : [])]
}

/** Where everything is, and what to try. */
export function startScreen(origin: string, database: DeskDatabase, options: DeskOptions): string[] {
  const { processes, traffic, operator, token, consoleToken } = options
  return [
    '',
    `The desk is open, in ${processes === 1 ? 'one process' : `${processes} processes`}${traffic ? ', with a little traffic of its own' : ''}.`,
    '',
    `  start page   ${origin}/`,
    `  API          ${origin}/docs`,
    `  console      ${origin}/console${operator ? '' : '   (read-only; --operator lets it change things)'}`,
    ...(consoleToken === undefined || consoleToken === token
      ? []
      : [`               its token for this run: ${consoleToken}`]),
    `  metrics      ${origin}/metrics`,
    ...(database.kind === 'ours' ? [`  database     ${database.url}`] : []),
    '',
    'Try it:',
    ...curls(origin).flatMap(({ title, lines }) => ['', `  # ${title}`, ...lines.map((line) => `  ${line}`)]),
    '',
    database.kind === 'ours'
      ? `It runs until you press Ctrl-C. Its data stays in ${database.dataDir}.`
      : 'It runs until you press Ctrl-C. What it made stays in the schemas lockstep, lockstep_desk and lockstep_exchange.',
  ]
}
