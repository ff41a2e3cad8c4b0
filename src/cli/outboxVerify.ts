import { createReadStream } from 'node:fs'
import { type Findings, type InboxStream, type SeenEvent, type StreamReport, StreamVerifier } from '../inbox/index.ts'
import { InvalidOptionError } from '../index.ts'
import { codeOf } from '../postgres/index.ts'
import type { Call, Outcome } from './command.ts'
import { table } from './table.ts'
import { UsageError } from './usageError.ts'
import { count, singleLine } from './formatting.ts'

const LINE = 'Each line is a JSON object with topic, key and seq, and with id where it is known.'

/** Reads what came out at the other end, and reports whether every stream is in order. Asks no database. */
export async function verify({ words: [, file = '-'], values }: Call, advice: string): Promise<Outcome> {
  if (file === '-' && process.stdin.isTTY) {
    throw new UsageError('Nothing comes in from standard input.', `${advice} Or pass the lines through a pipe.`)
  }
  const verifier = new StreamVerifier({ start: values.part === 'true' ? 'first' : 1 })
  let number = 0
  for await (const line of linesOf(file)) {
    number++
    if (line.trim() !== '') see(verifier, line, `Line ${number}${file === '-' ? '' : ` of ${file}`}`)
  }
  const report = verifier.report()
  return {
    exitCode: report.inOrder ? 0 : 1,
    json: { ok: report.inOrder, command: 'outbox verify', ...report },
    text({ paint, columns }) {
      const verdict = paint(report.inOrder ? 'green' : 'red', verdictOf(report))
      return [...storyOf(report, columns), verdict].join('\n')
    },
  }
}

function see(verifier: StreamVerifier, line: string, where: string): void {
  const event = eventOf(line)
  if (event === undefined) throw new UsageError(`${where} is no event.`, LINE)
  try {
    verifier.see(event)
  } catch (error) {
    if (error instanceof InvalidOptionError) throw new UsageError(`${where}: ${error.message}`, LINE)
    throw error
  }
}

/** What the verifier does not look at is looked at here: that it is an object, and that its id is text. */
function eventOf(line: string): SeenEvent | undefined {
  let read: unknown
  try {
    read = JSON.parse(line)
  } catch {
    return undefined
  }
  if (typeof read !== 'object' || read === null) return undefined
  const { topic, key, seq, id } = read as SeenEvent & { readonly id?: unknown }
  if (id === undefined || id === null) return { topic, key, seq }
  return typeof id === 'string' ? { topic, key, seq, id } : undefined
}

/** By hand: the lines of node:readline do not report a stream that fails. */
async function* linesOf(file: string): AsyncGenerator<string> {
  const stream = file === '-' ? process.stdin : createReadStream(file)
  stream.setEncoding('utf8')
  let rest = ''
  try {
    for await (const chunk of stream as AsyncIterable<string>) {
      const lines = `${rest}${chunk}`.split('\n')
      rest = lines.pop() ?? ''
      yield* lines
    }
  } catch (error) {
    const why = codeOf(error) === 'ENOENT' ? 'There is no file' : 'This cannot be read:'
    throw new UsageError(`${why} ${JSON.stringify(file)}.`, 'Write the path of a file, or - for standard input.')
  }
  if (rest !== '') yield rest
}

function storyOf(
  { gaps, duplicates, inversions, divergences, forgottenGaps }: StreamReport,
  columns: number,
): string[] {
  const range = (from: number, to: number): string => (from === to ? `#${from}` : `#${from} to #${to}`)
  const rows = [
    ...told('gap', gaps, ({ from, to }) => `${range(from, to)} never came`),
    ...told('inversion', inversions, ({ seq, after }) => `#${seq} came after #${after}`),
    ...told(
      'divergence',
      divergences,
      ({ seq, id, knownId }) => `#${seq} came as ${singleLine(knownId)}, then as ${singleLine(id)}`,
    ),
    ...told('duplicate', duplicates, ({ seq }) => `#${seq} came again`),
  ]
  const note = forgottenGaps === 0 ? [] : ['Too many gaps at once: some numbers that came late count as duplicates.']
  return [...(rows.length === 0 ? [] : [table(rows, columns), '']), ...note]
}

/** The first ones of a kind, and how many more there are. */
function told<Found extends InboxStream>(
  kind: string,
  { count: all, examples }: Findings<Found>,
  tell: (found: Found) => string,
): string[][] {
  const rows = examples.map((each) => [kind, `${singleLine(each.topic)}/${singleLine(each.key)}: ${tell(each)}`])
  return all > examples.length ? [...rows, [kind, `… ${all - examples.length} more`]] : rows
}

function verdictOf({ inOrder, streams, events, gaps, duplicates, inversions, divergences }: StreamReport): string {
  const found = [
    `${count(gaps.count, 'gap')}${gaps.count === 0 ? '' : ` (${count(gaps.missing, 'number')})`}`,
    count(inversions.count, 'inversion'),
    count(divergences.count, 'divergence'),
    count(duplicates.count, 'duplicate'),
  ]
  const seen = `${count(events, 'event')} of ${count(streams, 'stream')}`
  return `${seen}: ${inOrder ? 'in order' : 'not in order'}. ${found.join(', ')}.`
}
