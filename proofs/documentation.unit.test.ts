import { readFile } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { attacks } from './attacks/index.ts'
import { faults } from './faults/index.ts'
import { mutants } from './mutants/index.ts'
import { scenarios } from './scenarios/index.ts'

const guide = await readFile(new URL('../docs/guides/prove.md', import.meta.url), 'utf8')

/** The names in the first column of a table, under its heading. */
function listed(heading: string): string[] {
  const section = guide.split(`\n## ${heading}\n`)[1]?.split('\n## ')[0] ?? ''
  return [...section.matchAll(/^\| `([a-z][a-z-]*)` \|/gm)].map(([, name]) => name as string)
}

test('lists exactly the scenarios in the guide', () => {
  expect(listed('The scenarios')).toEqual(scenarios.map(({ name }) => name))
})

test('lists exactly the kinds of faults in the guide', () => {
  expect(listed('The faults')).toEqual(faults.map(({ name }) => name))
})

describe('ARCHITECTURE.md', async () => {
  const page = await readFile(new URL('../ARCHITECTURE.md', import.meta.url), 'utf8')
  const rows = [...page.matchAll(/^\| ([A-Z][0-9]) \| .* \| .* \| (.*) \|$/gm)].map(([, name = '', proofs = '']) => ({
    name,
    proofs,
  }))

  /** The names after `attack` or `attacks`, `mutant` or `mutants`. */
  function named(proofs: string, kind: string): string[] {
    const parts = proofs.split('; ').filter((part) => part.startsWith(kind))
    return parts.flatMap((part) => [...part.matchAll(/`([^`]+)`/g)].map(([, name]) => name as string))
  }

  test('names all invariants', () => {
    expect(rows.map(({ name }) => name)).toEqual(
      ['I1', 'I2', 'I3', 'I4', 'I5', 'I6', 'I7', 'I8', 'I9', 'L1', 'L2', 'L3', 'L4', 'L5', 'L6'].concat([
        'O1',
        'O2',
        'O3',
        'O4',
        'O5',
        'O6',
        'O7',
        'O8',
        'O9',
        'C1',
        'C2',
        'C3',
        'C4',
        'S1',
        'S2',
        'S3',
        'S4',
        'S5',
        'G1',
        'E1',
        'E2',
      ]),
    )
  })

  test.each(rows)('names proofs of $name that exist', ({ proofs }) => {
    const known = new Set(mutants.map(({ name }) => name))
    expect(named(proofs, 'attack').filter((name) => attacks[name] === undefined)).toEqual([])
    expect(named(proofs, 'mutant').filter((name) => !known.has(name))).toEqual([])
    expect(proofs).toMatch(/`|the suite/)
  })

  test('has the same invariants in the full wording', async () => {
    const wording = await readFile(new URL('../docs/reference/invariants.md', import.meta.url), 'utf8')
    const worded = [...wording.matchAll(/^- \*\*([A-Z][0-9]) /gm)].map(([, name]) => name)
    expect(worded).toEqual(rows.map(({ name }) => name))
  })
})
