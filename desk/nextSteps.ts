import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { DeskDatabase } from './openDatabase.ts'

/** What to try now. */
export function nextSteps(database: DeskDatabase): string[] {
  const url = database.kind === 'ours' ? database.url : '"$DATABASE_URL"'
  const leftBehind = [
    'Remove what the races made:',
    '',
    `  psql ${url} -c 'DROP SCHEMA lockstep_desk, lockstep CASCADE'`,
  ]
  return [
    'Next:',
    '',
    "  import pg from 'pg'",
    "  import { key, Lockstep } from 'pg-lockstep'",
    '',
    `  const lockstep = new Lockstep(new pg.Pool({ connectionString: process.env.DATABASE_URL }))`,
    '  await lockstep.transaction({ lock: key`Wallet:${id}` }, async (tx) => {',
    '    const { rows } = await tx.query(…)   // the lock is held: nobody else is between this read',
    '    await tx.query(…)                    // and this write',
    '  })',
    '',
    `  psql ${url} -c 'TABLE lockstep_desk.wallets'`,
    `  ${cli()} doctor --url ${url}`,
    ...(database.kind === 'ours' ? [] : ['', ...leftBehind]),
  ]
}

/** In a checkout that was never built the command does not exist yet; its source does. */
function cli(): string {
  const built = existsSync(fileURLToPath(new URL('../dist/cli/main.js', import.meta.url)))
  return built ? 'npx pg-lockstep' : 'npx tsx src/cli/main.ts'
}
