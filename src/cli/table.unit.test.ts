import { describe, expect, test } from 'vitest'
import { table } from './table.ts'
import { terminalOf } from './terminal.ts'
import { lengthOf, wrap } from './wrap.ts'

describe('table', () => {
  test('makes columns as wide as they need, with nothing behind the last', () => {
    expect(
      table([
        ['ok', 'clock', 'fine'],
        ['warn', 'a', ''],
        ['', '', '→ do it'],
      ]).split('\n'),
    ).toEqual(['ok    clock  fine', 'warn  a', '             → do it'])
  })

  test('wraps the last column under itself', () => {
    expect(table([['ok', 'one two three four five six seven']], 30).split('\n')).toEqual([
      'ok  one two three four five',
      '    six seven',
    ])
  })

  test('does not crush the last column', () => {
    const [first] = table([['a'.repeat(50), 'one two three four five six seven']], 62).split('\n')
    expect(first).toBe(`${'a'.repeat(50)}  one two three four five`)
  })

  test('gives columns up on a narrow terminal where they do not fit', () => {
    const rows = [
      ['warn', 'keepalive', 'tcp_keepalives_idle is 7200 s'],
      ['', '', '→ lower it'],
      ['  --url URL', '', 'the database'],
    ]
    expect(table(rows, 30).split('\n')).toEqual([
      'warn keepalive',
      '    tcp_keepalives_idle is',
      '    7200 s',
      '    → lower it',
      '  --url URL the database',
    ])
    expect(table(rows, 59).split('\n')[0]).toBe('warn         keepalive  tcp_keepalives_idle is 7200 s')
  })

  test('does not count colors, nor half of an emoji', () => {
    const { paint } = terminalOf({ isTTY: true, columns: 80 }, {})
    expect(lengthOf(paint('red', 'fail'))).toBe(4)
    expect(lengthOf('🔒')).toBe(1)
    const rows = [
      [paint('red', 'fail'), 'x'],
      ['ok', 'y'],
    ]
    expect(table(rows).split('\n').map(lengthOf)).toEqual([7, 7])
  })

  test('prints nothing for no rows', () => {
    expect(table([])).toBe('')
  })
})

describe('wrap', () => {
  test('leaves a word that is too long whole', () => {
    expect(wrap('a idle_in_transaction_session_timeout b', 10)).toEqual([
      'a',
      'idle_in_transaction_session_timeout',
      'b',
    ])
  })
})

describe('a terminal', () => {
  test('has colors only if a person looks and wants them', () => {
    const painted = (stream: object, env: NodeJS.ProcessEnv): boolean =>
      terminalOf(stream, env).paint('red', 'x') !== 'x'
    expect(painted({ isTTY: true }, {})).toBe(true)
    expect(painted({ isTTY: true }, { NO_COLOR: '1' })).toBe(false)
    expect(painted({ isTTY: true }, { TERM: 'dumb' })).toBe(false)
    expect(painted({}, {})).toBe(false)
    expect(painted({}, { CI: 'true' })).toBe(false)
    expect(painted({}, { FORCE_COLOR: '1' })).toBe(true)
    expect(painted({ isTTY: true }, { FORCE_COLOR: '0' })).toBe(true)
    expect(painted({ isTTY: true }, { FORCE_COLOR: '1', NO_COLOR: '1' })).toBe(false)
  })

  test('is written over only if a person looks at it', () => {
    const rows = (stream: object, env: NodeJS.ProcessEnv): number => terminalOf({ ...stream, rows: 24 }, env).rows
    expect(rows({ isTTY: true }, {})).toBe(24)
    expect(rows({ isTTY: true }, { CI: 'false' })).toBe(24)
    for (const env of [{ CI: 'true' }, { CI: '1' }, { TERM: 'dumb' }]) expect(rows({ isTTY: true }, env)).toBe(Infinity)
    expect(rows({}, {})).toBe(Infinity)
  })

  test('has no width if the output is a file', () => {
    expect(terminalOf({ columns: 80 }, {}).columns).toBe(Infinity)
    expect(terminalOf({ isTTY: true, columns: 80 }, {}).columns).toBe(80)
  })
})
