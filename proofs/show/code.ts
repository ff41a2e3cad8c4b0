import { readFile } from 'node:fs/promises'
import { type Card, cards } from './cards.ts'
import type { CardText } from './state.ts'

/** The sources, also where their JavaScript runs from `.built`. */
const SCENARIOS = new URL(
  import.meta.url.endsWith('.js') ? '../../../proofs/scenarios/' : '../scenarios/',
  import.meta.url,
)
const BEGINS = /^\s*\/\/ code: (naive|lockstep|both)$/
const ENDS = /^\s*\/\/ code: end$/
/** What reports to the checkers is no part of the recipe. */
const REPORTS = /\boperation\.tell\(/

/** The parts of a source that are marked for a form, without their common indentation and without what reports to the checkers. */
export function marked(source: string, form: 'naive' | 'lockstep'): string[] {
  const parts: string[] = []
  let part: string[] | undefined
  for (const line of source.split('\n')) {
    const begins = BEGINS.exec(line)?.[1]
    if (begins === form || begins === 'both') part = []
    else if (ENDS.test(line)) {
      if (part !== undefined) parts.push(withoutIndentation(part))
      part = undefined
    } else if (part !== undefined && !REPORTS.test(line)) part.push(line)
  }
  return parts
}

function withoutIndentation(lines: readonly string[]): string {
  const indents = lines.filter((line) => line.trim() !== '').map((line) => /^ */.exec(line)?.[0].length ?? 0)
  const common = Math.min(...indents)
  return lines.map((line) => line.slice(common)).join('\n')
}

/** What the page shows of each card, with the code from the files that run. */
export async function cardTexts(): Promise<CardText[]> {
  return Promise.all(
    cards.map(async ({ card, title, promise, red, naive, lockstep, scenario, files }) => ({
      card,
      title,
      promise,
      red,
      naive,
      lockstep,
      code: { naive: await codeOf(files, 'naive'), lockstep: await codeOf(files, 'lockstep') },
      checkers: scenario.checkers.map((checker) => ({ name: checker.name, promise: checker.promise })),
    })),
  )
}

async function codeOf(files: Card['files'], form: 'naive' | 'lockstep'): Promise<CardText['code']['naive']> {
  const sources = await Promise.all(files[form].map((file) => readFile(new URL(file, SCENARIOS), 'utf8')))
  return {
    files: files[form].map((file) => `proofs/scenarios/${file}`),
    text: sources.flatMap((source) => marked(source, form)).join('\n\n'),
  }
}
