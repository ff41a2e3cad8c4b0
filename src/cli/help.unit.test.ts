import { readFileSync } from 'node:fs'
import { describe, expect, test, vi } from 'vitest'
import { parseCommandLine } from './commandLine.ts'
import { commands } from './commands.ts'
import { EXIT_CODES } from './exitCodes.ts'
import { helpAsJson, helpFor } from './help.ts'
import { OPTIONS } from './options.ts'

const page = readFileSync(new URL('../../docs/reference/cli.md', import.meta.url), 'utf8')
const names = commands.map(({ name }) => name)

/** As a shell would take it apart. */
function words(line: string): string[] {
  return [...line.matchAll(/"([^"]*)"|\S+/g)].map(([whole, quoted]) => quoted ?? whole)
}

const examples = commands.flatMap(({ name, examples: own }) => own.map(({ line, does }) => ({ name, line, does })))

describe('examples', () => {
  test('exist for every command, with an explanation', () => {
    expect(new Set(examples.map(({ name }) => name))).toEqual(new Set(names))
    for (const { does } of examples) expect(does).not.toBe('')
  })

  test.each(examples)('$line', async ({ name, line }) => {
    const [program, ...args] = words(line)
    expect(program).toBe('pg-lockstep')
    const { command, call } = parseCommandLine(args, commands)
    expect(command?.name).toBe(name)
    // Verbs and values are looked at before a database is asked: all that such a line may lack is that.
    if (command?.options.includes('url') !== true || call.words.includes('verify') || call.values.url) return
    if (name === 'grants' && call.values.apply === undefined) return
    vi.stubEnv('DATABASE_URL', '')
    try {
      await expect(async () => command.run(call)).rejects.toThrow('No database was named.')
    } finally {
      vi.unstubAllEnvs()
    }
  })
})

describe('help', () => {
  test('has every command, and of each its options and examples', () => {
    const overview = helpFor(commands, undefined)
    for (const { name, usage, options, examples: own } of commands) {
      expect(overview).toMatch(new RegExp(`^ {2}${name} `, 'm'))
      const about = helpFor(commands, name)
      expect(about).toContain(`Usage: pg-lockstep ${`${name} ${usage}`.trim()}`)
      for (const option of options) expect(about).toContain(`  --${option}`)
      for (const { line, does } of own)
        expect(about).toMatch(new RegExp(`^ {2}${escaped(line)} +${escaped(does)}$`, 'm'))
    }
    expect(commands.find(({ name }) => name === 'help')?.words).toEqual(names)
  })

  test.each([40, 80])('fits a screen of %i columns', (columns) => {
    for (const name of [undefined, ...names]) {
      const lines = helpFor(commands, name, columns).split('\n')
      // A word that is longer than a line is not broken.
      expect(lines.filter((line) => line.length > columns && line.trim().includes(' '))).toEqual([])
    }
  })

  test('has the same content as JSON', () => {
    const all = helpAsJson(commands, undefined) as { commands: { name: string; options: { name: string }[] }[] }
    expect(all.commands.map(({ name }) => name)).toEqual(names)
    const one = helpAsJson(commands, 'locks') as typeof all
    expect(one.commands.map(({ name }) => name)).toEqual(['locks'])
    expect(one.commands[0]?.options.map(({ name }) => name)).toContain('--watch')
    expect(JSON.parse(JSON.stringify(one))).toMatchObject({ exitCodes: [{ code: '0' }, {}, {}, {}, {}] })
  })

  test('offers JSON for every command', () => {
    expect(commands.filter(({ options }) => !options.includes('json')).map(({ name }) => name)).toEqual([])
  })
})

describe('docs/reference/cli.md', () => {
  test('has every command, and no other', () => {
    const [table = ''] = page.split('| option |')
    const told = [...table.matchAll(/^\| `(\w+)[^|]*\|/gm)].map(([, name = '']) => name)
    expect(new Set(told)).toEqual(new Set(names))
    const verbs = [...table.matchAll(/`outbox \[?(\w+)\]?/g)].map(([, verb]) => verb)
    expect(new Set(verbs)).toEqual(new Set(commands.find(({ name }) => name === 'outbox')?.words))
  })

  test('has every option with the commands that take it, and no other', () => {
    const table = page.slice(page.indexOf('| option |'), page.indexOf('The driver is'))
    const told = new Map<string, Set<string>>()
    for (const [, options = '', of = ''] of table.matchAll(/^\| ([^|]*(?:\\\|[^|]*)*) \| ([^|]*) \|/gm)) {
      const takers = of.startsWith('all') ? names : [...of.matchAll(/`(\w+)[^`]*`/g)].map(([, taker = '']) => taker)
      for (const [, option = ''] of options.matchAll(/`--([\w-]+)/g)) told.set(option, new Set(takers))
    }
    told.delete('help')
    told.delete('version')
    expect([...told.keys()].toSorted(byText)).toEqual(Object.keys(OPTIONS).toSorted(byText))
    for (const [option, takers] of told)
      for (const { name, options } of commands)
        if (takers.has(name)) expect(options, `--${option} of ${name}`).toContain(option)
    for (const { name, options } of commands)
      for (const option of options) {
        const takers = told.get(option) ?? new Set()
        expect(takers.has(name), `--${option} of ${name}`).toBe(true)
      }
  })

  test('has the exit codes of help, and no others', () => {
    const table = page.slice(page.indexOf('| exit code |'))
    const told = [...table.matchAll(/^\| (\d[\d +n]*) \| ([^|]*) \|$/gm)].map(([, code = '', meaning = '']) => ({
      code,
      meaning: meaning.replaceAll('`', ''),
    }))
    expect(told).toEqual(EXIT_CODES)
    const overview = helpFor(commands, undefined)
    for (const { code, meaning } of EXIT_CODES)
      expect(overview).toMatch(new RegExp(`^ {2}${escaped(code)} +${escaped(meaning)}$`, 'm'))
  })
})

function byText(one: string, other: string): number {
  return one < other ? -1 : 1
}

function escaped(text: string): string {
  return text.replaceAll(/[$()*+.?[\\\]^{|}]/g, String.raw`\$&`)
}
