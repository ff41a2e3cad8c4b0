import { readFile } from 'node:fs/promises'

/** The page that says what each role can do. */
export const ROLES_PAGE = new URL('../../../docs/operating/roles.md', import.meta.url)

/** Reads the table of functions and roles: for each role, the functions that it can call. */
export function rolesIn(page: string): Map<string, Set<string>> {
  const rows = page.split('\n').filter((line) => line.startsWith('|'))
  const head = rows.findIndex((line) => /^\|\s*function\s*\|/.test(line))
  if (head === -1) throw new Error('docs/operating/roles.md has no table of functions')
  const names = cellsOf(rows[head] ?? '').slice(1)
  const found = new Map(names.map((name) => [name, new Set<string>()]))
  for (const row of rows.slice(head + 2)) {
    const [called = '', ...marks] = cellsOf(row)
    for (const [place, mark] of marks.entries()) {
      if (mark !== '') found.get(names[place] ?? '')?.add(called.replaceAll('`', ''))
    }
  }
  return found
}

function cellsOf(row: string): string[] {
  return row
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim())
}

export async function documentedRoles(): Promise<Map<string, Set<string>>> {
  return rolesIn(await readFile(ROLES_PAGE, 'utf8'))
}
