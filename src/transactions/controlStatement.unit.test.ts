import { describe, expect, test } from 'vitest'
import { readControls, touchesTransaction } from './controlStatement.ts'

describe('readControls', () => {
  test.each<[string, object]>([
    ['BEGIN', { kind: 'begin' }],
    ['begin work;', { kind: 'begin' }],
    ['START/* x */TRANSACTION', { kind: 'begin' }],
    [
      'BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE',
      { isolation: 'serializable', readOnly: true, deferrable: true },
    ],
    ['start transaction isolation level repeatable read read write', { isolation: 'repeatable read', readOnly: false }],
    [
      'BEGIN TRANSACTION ISOLATION LEVEL READ UNCOMMITTED NOT DEFERRABLE',
      { isolation: 'read committed', deferrable: false },
    ],
    ['BEGIN IMMEDIATE', { kind: 'begin', unknown: 'immediate' }],
    [`BEGIN ${'READ ONLY, '.repeat(20)} ISOLATION LEVEL SERIALIZABLE`, { kind: 'begin', unknown: expect.any(String) }],
    ['COMMIT', { kind: 'commit', chain: false }],
    ['END TRANSACTION;', { kind: 'commit', chain: false }],
    ['COMMIT AND NO CHAIN', { kind: 'commit', chain: false }],
    ['COMMIT WORK AND CHAIN', { kind: 'commit', chain: true }],
    ['ABORT', { kind: 'rollback', chain: false }],
    ['ROLLBACK AND CHAIN', { kind: 'rollback', chain: true }],
    ['ROLLBACK TO mine', { kind: 'savepoint', name: 'mine' }],
    ['ROLLBACK WORK TO SAVEPOINT "Mine"', { kind: 'savepoint', name: 'Mine' }],
    ['SAVEPOINT a', { kind: 'savepoint', name: 'a' }],
    ['RELEASE a', { kind: 'savepoint', name: 'a' }],
    ['RELEASE SAVEPOINT a', { kind: 'savepoint', name: 'a' }],
    [`PREPARE/**/TRANSACTION 'x'`, { kind: 'twoPhase' }],
    [`COMMIT PREPARED 'x'`, { kind: 'twoPhase' }],
    [`ROLLBACK PREPARED 'x'`, { kind: 'twoPhase' }],
    ['SET TRANSACTION ISOLATION LEVEL SERIALIZABLE', { kind: 'setTransaction', isolation: 'serializable' }],
    ['SET LOCAL TRANSACTION READ ONLY', { kind: 'setTransaction', readOnly: true }],
    [`SET transaction_isolation = 'serializable'`, { kind: 'setTransaction', unknown: `'` }],
    ['SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE', { kind: 'setSession' }],
  ])('%j', (text, control) => {
    const { statements, controls } = readControls(text)
    expect(statements).toBe(1)
    expect(controls).toEqual([expect.objectContaining(control)])
  })

  test.each([
    'SELECT 1',
    'SELECT 1;',
    'PREPARE x AS SELECT 1',
    `SET LOCAL lock_timeout = '1s'`,
    'SET search_path TO a, b',
    'SELECT $$; COMMIT; $$',
    'RESET ALL',
    'commitment',
    'START_REPLICATION',
  ])('finds none in %j', (text) => {
    expect(readControls(text).controls).toEqual([])
  })

  test('finds control statements among others', () => {
    expect(readControls('INSERT INTO t VALUES (1); COMMIT; BEGIN').controls.map(({ kind }) => kind)).toEqual([
      'commit',
      'begin',
    ])
  })
})

test.each<[string, boolean]>([
  ['COMMIT', true],
  [`PREPARE/**/TRANSACTION 'x'`, true],
  ['ROLLBACK TO mine', false],
  ['ROLLBACK TO ours', true],
  ['RELEASE ours', true],
  ['SET TRANSACTION READ ONLY', false],
  ['SELECT 1; COMMIT', false],
])('refuses %j in tx.query(): %j', (text, refused) => {
  expect(touchesTransaction(text, (name) => name === 'ours')).toBe(refused)
})
